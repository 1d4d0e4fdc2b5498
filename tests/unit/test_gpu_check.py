"""tools/gpu/check.sh: its cheap checks on the soft GPU, and that checks can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "gpu"))

import building
import check
import jobs
import measurements
from checklist import Check, Checklist, FailError, SkipError
from machine import ROOT, Machine

SCRIPT = ROOT / "tools" / "gpu" / "check.sh"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120
    )  # fmt: skip


ELSEWHERE = """
typedef unsigned long long u64;
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = 0; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAddressFree(u64 a, u64 b) { return 0; }
int cuMemAddressReserve(u64 *got, u64 bytes, u64 alignment, u64 wanted, u64 flags) {
  *got = wanted >= 0x200000000000 ? wanted : 0x300000000000;
  return 0;
}
"""
WORKING = """
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetName(char *name, int bytes, int device) { strcpy(name, "a GPU"); return 0; }
int cuDeviceGetAttribute(int *got, int what, int device) { *got = what == 75 ? 9 : 0; return 0; }
"""


def machine(folder: Path) -> Machine:
    return Machine(False, "a test", folder, None, "soft")


def test_the_script_is_sound_and_names_its_checks() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    names = run("--list").stdout.split()
    assert len(names) == len(set(names))
    # What says most comes first, and what is measured needs no pyft.
    first = ["build", "smoke", "nccl-two-ranks", "nccl-killed-server", "snapshot-large"]
    assert names[names.index("build") :][:5] == first
    before = names[: names.index("build")]
    assert before[0] == "build-measurements"
    assert {"window", "killed-process", "device-digests"} <= set(before)
    assert {"examples-bitwise", "recovery-cold", "two-ranks"} <= set(names)


def test_all_checks_fit_into_their_time() -> None:
    checks = check.checks_of(gpu=True)
    assert sum(one.planned for one in checks) <= check.SECONDS <= 9 * 60 - 10
    assert all(0 < one.planned < one.seconds for one in checks)
    assert next(one for one in checks if one.name == "smoke").planned <= 15


@pytest.mark.parametrize("gpu", [True, False])
def test_what_a_check_needs_comes_before_it(gpu: bool) -> None:
    seen: set[str] = set()
    for one in check.checks_of(gpu):
        assert set(one.needs) <= seen, one.name
        seen.add(one.name)
    assert seen == set(check.PART_OF)


def test_measurements_run_on_the_soft_gpu(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    only = "mapping,device-digests,killed-p"  # what they need comes by itself
    done = run("--soft", "--only", only, "--markdown", str(table))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:-1]]
    found = {words[5]: words[0] for words in lines}  # STATUS 1.0 s of 5 NAME
    passed = dict.fromkeys(("build-measurements", "mapping", "device-digests"), "PASS")
    assert found == passed | {"killed-process": "SKIP"}
    assert "| mapping | PASS |" in table.read_text()


def test_checks_bring_what_they_need() -> None:
    def names(only: str, installed: bool, gpu: bool) -> list[str]:
        return [one.name for one in check.chosen(only, installed, gpu)]

    for gpu in (True, False):
        every = [one.name for one in check.checks_of(gpu)]
        assert names("", True, gpu) == names("", False, gpu) == every
        assert names("window", True, gpu) == ["build-measurements", "window"]
        assert names("two-ranks", True, gpu) == ["nccl-two-ranks", "two-ranks"]
        assert names("recovery-cold", False, gpu) == ["build", "recovery-cold"]
        assert names("nothing", False, gpu) == []
    # A soft GPU is a part of pyft.
    assert names("window", False, True) == ["build-measurements", "window"]
    assert names("window", False, False) == ["build", "build-measurements", "window"]


def test_a_program_says_whether_it_failed() -> None:
    got = measurements.read("figure word 2.5 us\naddress code 0x10\nfor people\n")
    assert got.figures == {"word": (2.5, "us")}
    assert got.addresses == {"code": "0x10"}
    with pytest.raises(FailError, match="it is elsewhere"):
        measurements.read("figure word 2.5 us\nfail it is elsewhere\n")
    with pytest.raises(SkipError, match="no driver"):
        measurements.read("skip no driver\n")


@pytest.mark.parametrize(
    ("proxied", "why"),
    [
        ("step=1 loss=2.5\nrank=0 params_sha256=ab\n", ""),
        ("step=1 loss=2.25\nrank=0 params_sha256=ab\n", "differ"),
        ("step=1 loss=2.5\n", "differ"),
    ],
)
def test_other_bits_are_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: str, why: str
) -> None:
    answers = iter(["step=1 loss=2.5\nrank=0 params_sha256=ab\n", proxied])
    monkeypatch.setattr(Machine, "run", lambda *_: next(answers))
    monkeypatch.setattr(Machine, "_command", lambda _: ["pyft", "run"])
    if not why:
        assert len(jobs.compare(machine(tmp_path), ["program"])) == 2
        return
    with pytest.raises(FailError, match="native"):
        jobs.compare(machine(tmp_path), ["program"])


def test_one_failure_is_counted_and_the_others_run(tmp_path: Path) -> None:
    def fails(_: Machine) -> list[str]:
        raise FailError("it does not hold")

    def breaks(_: Machine) -> list[str]:
        raise ValueError("unforeseen")

    checklist = Checklist(machine(tmp_path), 100)
    for number, what in enumerate((fails, breaks, lambda _: ["3 us"])):
        checklist.run(Check(f"check-{number}", 5, 10, what))
    assert [result.status for result in checklist.results] == ["FAIL", "FAIL", "PASS"]
    assert checklist.failed == 2
    table = checklist.markdown([])
    assert "| check-1 | FAIL | 5 | " in table
    assert "ValueError: unforeseen" in table


def test_what_a_program_said_stands_below_its_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A compiler's errors come long before the last lines, which say only what was being done."""
    text = "print('a.cc:3: error: no such thing\\n' + 'note\\n' * 99 + 'while compiling'); exit(1)"

    def builds(here: Machine) -> list[str]:
        return [here.run([sys.executable, "-c", text])]

    def hangs(here: Machine) -> list[str]:
        here.deadline = 0.0  # now: a program has a second in any case
        return [here.run(["sh", "-c", "echo waiting for the driver; exec sleep 60"])]

    checklist = Checklist(machine(tmp_path), 100)
    checklist.run(Check("builds", 1, 10, builds))
    checklist.run(Check("hangs", 1, 10, hangs))
    said = capsys.readouterr().out.splitlines()
    assert said[1] == "      | a.cc:3: error: no such thing"
    assert (said[13], len(said)) == ("      | while compiling", 16)
    assert said[14].startswith("FAIL")
    assert "does not end within [1 s]" in said[14]
    assert said[15] == "      | waiting for the driver"


def test_a_check_that_waits_for_ever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checklist.GRACE_S", 0.0)
    checklist = Checklist(machine(tmp_path), 100)
    checklist.run(Check("waits", 0.1, 0.1, lambda _: [str(time.sleep(60))]))
    assert checklist.results[0].text == "it is not over after [0 s]"


def test_without_any_gpu_checks_fail(tmp_path: Path) -> None:
    """Or a machine whose driver is broken would pass by skipping everything."""
    here = machine(tmp_path)
    with pytest.raises(FailError, match="pyft is not built"):
        building.doctor(here)
    here.pyft, here.native = ["pyft"], tmp_path
    with pytest.raises(FailError, match=r"nothing to run on: a test, and pyft was built without"):
        here.proxied(["true"])
    (tmp_path / "libsoftgpu.so").touch()
    assert here.proxied(["true"])[:3] == ["pyft", "run", "--gpus"]


def test_the_driver_is_found_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None
    source, driver = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuInit(unsigned flags) { return 803; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", driver, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = Machine.find(False, tmp_path, None)
    assert (found.gpu, found.why_soft) == (False, "no GPU was found ([cuInit] fails with [803])")
    source.write_text(WORKING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", driver, source], check=True)
    found = Machine.find(False, tmp_path, None)
    assert (found.gpu, found.name, found.architecture) == (True, "a GPU", "sm_90")


def test_files_of_the_future_are_made_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """meson does not build what a machine with another clock has sent."""
    ahead, past = tmp_path / "ahead.cc", tmp_path / "past.cc"
    for path, seconds in ((ahead, 7200), (past, -7200)):
        path.touch()
        os.utime(path, (time.time() + seconds,) * 2)
    (tmp_path / "link").symlink_to("nothing")
    monkeypatch.setattr(building, "ROOT", tmp_path)
    building.end_future()
    assert ahead.stat().st_mtime <= time.time()
    assert past.stat().st_mtime < time.time() - 7000


def test_no_check_begins_without_time(tmp_path: Path) -> None:
    checklist = Checklist(machine(tmp_path), 1)
    checklist.run(Check("long", 100, 400, lambda _: ["never"]))
    assert checklist.results[0].status == "SKIP"


@pytest.mark.parametrize(
    ("fails", "forbidden", "passes"),
    [("ASLR", False, True), ("no ASLR", False, False), ("ASLR", True, False), ("", True, True)],
)
def test_only_programs_that_run_as_servers_must_get_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, forbidden: bool, passes: bool
) -> None:
    def run(_: Machine, command: list[str], **__: object) -> str:
        fixed = command[0] == "setarch"
        if fixed and forbidden:
            raise FailError("failed to set personality")
        if fails and fixed == (fails == "no ASLR"):
            return "fail it lies elsewhere\n"
        return "figure reserve_us 2 us\n"

    monkeypatch.setattr(Machine, "run", run)
    monkeypatch.setattr(Machine, "left", lambda _: 60.0)
    (tmp_path / "measure").touch()
    if passes:
        counts = "ASLR: 0 of 5 processes" if fails else "ASLR: 5 of 5 processes"
        assert counts in measurements.window(machine(tmp_path))
    else:
        with pytest.raises(FailError, match="it lies elsewhere"):
            measurements.window(machine(tmp_path))


def test_another_place_for_the_window_is_named(tmp_path: Path) -> None:
    """A driver that takes no address below 0x2000_0000_0000."""
    compiler = shutil.which("cc")
    assert compiler is not None
    source, driver = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(ELSEWHERE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", driver, source], check=True)
    here = machine(tmp_path)
    here.deadline = time.monotonic() + 90
    building.build_measurements(here)
    with pytest.raises(FailError) as error:
        measurements.measure(here, "window", environment={"MEASURE_DRIVER": str(driver)})
    assert "at 0x300000000000 instead of 0x180000000000" in str(error.value)
    assert str(error.value).endswith(
        "can be had at 0x200000000000 0x500000000000 0x660000000000 0x700000000000"
    )
