"""tools/gpu/check.sh --artifacts: what failing and hanging checks leave is there afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "gpu"))

import artifacts
import building
import check
import hung
from artifacts import Artifacts
from checklist import Check, Checklist, FailError
from machine import Machine

PARTS = {"fails": "early", "hangs": "early", "passes": "late"}
LEAVES = 'mkdir -p "$XDG_STATE_HOME/pyft/job" && echo a trace >"$XDG_STATE_HOME/pyft/job/trace"'


def machine(folder: Path) -> Machine:
    return Machine(False, "a test", folder, None, "soft")


def content(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_failing_and_hanging_checks_leave_what_they_had(tmp_path: Path) -> None:
    def fails(here: Machine) -> list[str]:
        here.report().write_text("{}")
        return [here.run(["sh", "-c", f"{LEAVES}; echo last words; exit 3"])]

    def hangs(here: Machine) -> list[str]:
        here.deadline = 0.0  # now: a program has a second in any case
        return [here.run(["sh", "-c", f"{LEAVES}; echo $CUDA_LOG_FILE; sleep 60"])]

    here, target = machine(tmp_path), tmp_path / "target"
    checklist = Checklist(here, 1000, Artifacts(target, here.kept, PARTS))
    steps: list[list[str]] = []
    runs = {"fails": fails, "hangs": hangs, "passes": lambda here: [here.run(["echo", "well"])]}
    checklist.run_all(
        [Check(name, 1, 30, run) for name, run in runs.items()],
        lambda: steps.append([one.status for one in checklist.results]),
    )
    assert steps == [["FAIL"], ["FAIL", "FAIL"], ["FAIL", "FAIL", "PASS"]]
    early = content(target / "early.tar.gz")
    assert "last words" in early["fails/001-sh.txt"]
    assert early["fails/report-001.json"] == "{}"
    assert early["fails/state/pyft/job/trace"] == "a trace\n"
    assert str(here.kept / "hangs" / "cuda.log") in early["hangs/001-sh.txt"]
    standing = "".join(text for name, text in early.items() if "/hung-" in name)
    assert "sleep 60" in standing
    assert {"wchan:", "syscall:", "stack:", "State:"} <= set(standing.split())
    assert "well" in content(target / "late.tar.gz")["passes/001-echo.txt"]
    assert sorted(path.name for path in target.iterdir()) == ["early.tar.gz", "late.tar.gz"]


def test_who_ends_the_whole_gets_what_there_is(tmp_path: Path) -> None:
    def ended(here: Machine) -> list[str]:
        here.run(["echo", "so far"])
        raise SystemExit(143)

    here, target = machine(tmp_path), tmp_path / "target"
    checklist = Checklist(here, 1000, Artifacts(target, here.kept, PARTS))
    checks = [Check("fails", 1, 30, ended), Check("hangs", 1, 30, lambda _: ["never"])]
    with pytest.raises(SystemExit):
        checklist.run_all(checks, lambda: None)
    assert "so far" in content(target / "early.tar.gz")["fails/001-echo.txt"]


def test_processes_of_other_groups_belong_to_who_started_them() -> None:
    script = "import subprocess; subprocess.run(['sleep', '60'], start_new_session=True)"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        end = time.monotonic() + 60
        while len(found := hung.related(process.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert process.pid in found
        (child,) = set(found) - {process.pid}
        assert os.getpid() not in found
        assert f"== {child}:" in hung.standing(child)
        os.kill(child, 15)
    finally:
        process.kill()
        process.wait()


def test_large_files_are_cut_until_the_archive_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "LIMIT", 64 << 10)
    monkeypatch.setattr(artifacts, "READ", 1 << 20)
    kept = tmp_path / "kept"
    (kept / "one").mkdir(parents=True)
    (kept / "one" / "small.txt").write_text("small")
    (kept / "one" / "trace.ring").write_bytes(b"begin\0" + os.urandom(4 << 20))
    words = b" ".join(str(number).encode() for number in range(400_000))
    (kept / "one" / "log.txt").write_bytes(b"begin " + words + b" end")
    (kept / "one" / "link").symlink_to("/dev/zero")
    Artifacts(tmp_path / "target", kept, {"one": "part"}).pack("part")
    archive = tmp_path / "target" / "part.tar.gz"
    assert archive.stat().st_size <= artifacts.LIMIT
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        got = {name: file.read() for name, file in files.items() if file}
    assert set(got) == {"one/small.txt", "one/trace.ring", "one/log.txt"}
    assert got["one/small.txt"] == b"small"
    assert got["one/trace.ring"].startswith(b"begin\0")
    text = got["one/log.txt"]
    assert text.startswith(b"begin ")
    assert text.endswith(b" end")
    assert artifacts.CUT in text


def test_archives_come_back_together() -> None:
    """8 files of 16 MiB and 64 MiB in all, which even a machine behind a narrow door hands out."""
    parts = set(check.PART_OF.values())
    assert len(parts) + 2 <= 8  # the table, and what was printed
    assert artifacts.LIMIT < 16 << 20
    assert len(parts) * artifacts.LIMIT < 64 << 20


def test_pyft_is_compiled_beside_other_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build goes on until something else has happened; then its end is waited for."""
    script, go = tmp_path / "building.py", tmp_path / "go"
    script.write_text(
        f"import pathlib, sys, time\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.02)\n"
        f"print('built by', len(sys.argv))\n"
    )
    monkeypatch.setattr(building, "__file__", str(script))
    monkeypatch.setattr(building, "find_installed", lambda here: here.pyft.append("true") or "")
    here = machine(tmp_path)
    here.pyft = ["an older one"]
    building.start(here)
    assert here.builder is not None
    checklist = Checklist(here, 1000)
    checklist.run(Check("measures", 1, 30, lambda _: [str(go.write_text("now"))]))
    checklist.run(Check("build", 1, 30, building.build))
    assert [one.status for one in checklist.results] == ["PASS", "PASS"], checklist.results
    assert checklist.results[1].text.startswith("built by 2; waited for it")
    assert here.pyft == ["true"]


def test_the_build_installs_what_there_is_into_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(building, "call", commands.append)
    monkeypatch.setattr(building, "end_future", lambda: None)
    monkeypatch.setattr(building, "SITE", tmp_path / "site")
    monkeypatch.setattr(building, "own_environment", lambda: False)
    for name in ("PYTHONPATH", "PYFT_MESON_OPTIONS"):
        monkeypatch.setenv(name, "")  # as it was, afterwards
    for package in (*building.RUN_TIME_NEEDS, "setuptools", "mesonbuild", "ninja"):
        (tmp_path / "site" / package).mkdir(parents=True)
    (tmp_path / "typer.whl").touch()
    assert building.install(tmp_path).startswith("pip install")
    wheels, pyft = commands
    assert wheels[-1] == str(tmp_path / "typer.whl")
    assert pyft[-1] == str(building.ROOT)
    assert all(["--target", str(tmp_path / "site")] == one[6:8] for one in commands)
    assert all("--no-index" in one for one in commands)
    assert os.environ["PYTHONPATH"] == str(tmp_path / "site")
    assert "-Dtests=false" in os.environ["PYFT_MESON_OPTIONS"]


def test_a_build_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an older pyft is not taken for the new one."""
    script = tmp_path / "building.py"
    script.write_text("print('a.cc:3: error: no such thing'); raise SystemExit(1)")
    monkeypatch.setattr(building, "__file__", str(script))
    here = machine(tmp_path)
    here.pyft, here.deadline = ["an older one"], time.monotonic() + 60
    with pytest.raises(FailError, match="no such thing"):
        building.build(here)
    assert here.pyft == []
    assert "no such thing" in (here.evidence / building.LOG).read_text()
