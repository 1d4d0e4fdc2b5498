"""tools/gpu/check.sh: how jobs with faults are run and judged, without running them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "gpu"))

import large
import nccl
import recoveries
from checklist import Check, Checklist, FailError, SkipError
from machine import Machine

GIB = 1 << 30
RANK = {"spawn": 100.0, "restore": 2000.0, "communicator": 300.0, "replay": 4.0}
FAULT = {
    "fault": "server-killed",
    "outcome": "recovered",
    "phases_ms": RANK,
    "verdict": "exact",
    "peer_bytes": 0,
    "ready_modules": 0,
    "noticed": 1.0,
    "ended": 2.5,
    "restored_bytes": 40e9,
}
PEER = FAULT | {"fault": "peer-failed"}


class Recorded:
    """Stands for Machine.run: keeps commands, writes reports, gives results."""

    def __init__(self, results: Sequence[str], faults: Sequence[dict] = (FAULT,)) -> None:
        self.results = list(results)
        self.faults = faults
        self.commands: list[list[str]] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(
        self, command: list[str], environment: Mapping[str, str] | None = None, **_: object
    ) -> str:
        self.commands.append(command)
        self.environments.append(environment or {})
        faults = list(self.faults) if "--inject" in command else []
        report = {"recovery": {"faults": faults}}
        Path(command[command.index("--report") + 1]).write_text(json.dumps(report))
        return self.results[min(len(self.commands), len(self.results)) - 1]


def outcome(losses: str, *, ranks: int = 1) -> str:
    lines = [f"step={number} loss={losses}" for number in range(nccl.STEPS)]
    return "\n".join([*lines, *(f"rank={rank} params_sha256={losses}" for rank in range(ranks))])


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, run: Recorded) -> Machine:
    here = Machine(True, "", folder, None, "a GPU")
    here.pyft = ["pyft"]
    monkeypatch.setattr(here, "run", run)
    monkeypatch.setattr(nccl, "version", lambda _: (2, 28, 9))
    return here


@pytest.mark.parametrize(
    ("wanted", "got", "again", "status", "says"),
    [
        ("1", "1", "1", "PASS", "A/A equal, A/B equal"),
        ("1", "2", "1", "FAIL", "A/A equal, A/B differs"),
        ("1", "2", "3", "SKIP", "not judged: A/A differs, A/B differs"),
        ("1", "1", "3", "SKIP", "not judged: A/A differs, A/B equal"),
    ],
)
def test_a_job_that_differs_by_itself_judges_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: str,
    got: str,
    again: str,
    status: str,
    says: str,
) -> None:
    run = Recorded([outcome(wanted), outcome(got), outcome(again)])
    checklist = Checklist(machine(tmp_path, monkeypatch, run), 1000)
    checklist.run(Check("cold", 1, 10, recoveries.cold))
    (result,) = checklist.results
    assert (result.status, says in result.text) == (status, True), result
    assert ["--inject" in command for command in run.commands] == [False, True, False]
    assert "restore 2000" in result.text


def test_a_fault_that_is_not_repaired_fails_whatever_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for faults in ([], [FAULT, FAULT], [FAULT | {"outcome": "given up"}], [FAULT, PEER]):
        run = Recorded([outcome("1"), outcome("1"), outcome("2")], faults)
        with pytest.raises(FailError, match="faults of the report"):
            recoveries.cold(machine(tmp_path, monkeypatch, run))


def test_nccl_takes_each_rank_for_a_host_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorded([outcome("1", ranks=2)], [FAULT, PEER])
    here = machine(tmp_path, monkeypatch, run)
    assert "NCCL 2.28.9" in nccl.undisturbed(here)[0]
    assert "2 ranks replay; A/A equal, A/B equal" in nccl.killed(here)[0]
    assert ["--inject" in command for command in run.commands] == [False, True, False]
    for command, environment in zip(run.commands, run.environments, strict=True):
        assert command[:4] == ["pyft", "run", "--gpus", "0,0"]
        assert environment["PYFT_COLLECTIVES"] == "nccl"
        assert environment["NCCL_DEBUG"] == "INFO"
        assert Path(environment["NCCL_DEBUG_FILE"]).parent == here.evidence
    program = run.commands[0][run.commands[0].index("--") + 1 :]
    assert program[:3] == [sys.executable, "-m", "torch.distributed.run"]
    at = program.index("--no-python")
    assert program[program.index("--nproc-per-node") + 1] == "2"
    # What torchrun would start, with a program that tells its environment in the place of Python.
    shell = program[at + 1 :]
    assert shell[:2] == ["sh", "-c"]
    assert shell[3] == sys.executable
    assert Path(shell[4]).is_file()
    shell[3:] = ["sh", "-c", 'echo "$NCCL_HOSTID $NCCL_SOCKET_IFNAME"']
    for rank in ("0", "1"):
        done = subprocess.run(shell, env={"RANK": rank}, capture_output=True, text=True, check=True)
        assert done.stdout == f"r{rank} lo\n"


def test_nccl_must_show_the_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Recorded([outcome("1", ranks=2)], [PEER])
    with pytest.raises(FailError, match="faults of the report"):
        nccl.killed(machine(tmp_path, monkeypatch, run))


def test_an_nccl_that_fails_is_not_called_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorded([outcome("1", ranks=1)])
    with pytest.raises(FailError, match=r"\[7\] lines of results instead of \[8\]"):
        nccl.undisturbed(machine(tmp_path, monkeypatch, run))


def test_older_nccl_is_skipped_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Machine(True, "", tmp_path, None, "a GPU")
    source, library = tmp_path / "nccl.c", tmp_path / "libnccl.so.2"
    monkeypatch.setenv("PYFT_CUDA_LIBRARIES", str(tmp_path))
    compiler = shutil.which("cc")
    assert compiler is not None
    for number in ("22707", "22800"):
        source.write_text(f"int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}\n")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
        if number == "22800":
            assert nccl.need_nccl(here) == "2.28.0"
            continue
        for run in (nccl.undisturbed, nccl.killed):
            with pytest.raises(SkipError, match=r"NCCL \[2.27.7\] takes no two ranks on one GPU"):
                run(here)
    library.write_text("no library")
    with pytest.raises(SkipError, match="there is no NCCL"):
        nccl.need_nccl(here)


@pytest.mark.parametrize(
    ("gpu", "available", "seconds", "wanted"),
    [(78, 120, 108, 22), (78, 120, 1000, 39), (200, 1000, 1000, 40), (78, 60, 108, 20)],
)
def test_memory_is_filled_as_far_as_all_allow(
    gpu: int, available: int, seconds: float, wanted: int
) -> None:
    assert large.gibibytes(gpu * GIB, available * GIB, seconds) == wanted


@pytest.mark.parametrize(("gpu", "available", "seconds"), [(24, 120, 108), (78, 40, 108)])
def test_too_little_memory_is_said(gpu: int, available: int, seconds: float) -> None:
    with pytest.raises(SkipError, match=f"{gpu} GiB.* are free on the GPU, .{available} GiB"):
        large.gibibytes(gpu * GIB, available * GIB, seconds)


def test_what_comes_back_otherwise_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = "".join(f"step={number} loss=1\n" for number in range(large.STEPS))
    run = Recorded([f"{steps}total wrong=1 of 20\n"])
    here = machine(tmp_path, monkeypatch, run)
    monkeypatch.setattr(large, "free_mib", lambda _: 80.0 * 1024)
    monkeypatch.setattr(large, "available_bytes", lambda: 120 * GIB)
    monkeypatch.setattr(here, "left", lambda: 98.0)
    with pytest.raises(FailError, match="what comes back is not what was there"):
        large.large(here)
    assert run.commands[0][-3:] == ["20", "1024", str(large.STEPS)]
