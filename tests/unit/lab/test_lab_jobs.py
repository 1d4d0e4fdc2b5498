"""Jobs that are killed altogether: all of them ends, the cell goes on, and what met nothing is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyft_lab.api import FAULTS, KILLED, OF_JOBS, SILENT, Mechanism
from pyft_lab.matrix import job, runner, spec
from pyft_lab.mechanisms import SHIPPED, find, pyft_movable
from pyft_lab.oracles import oracle

STAND_IN = Path(__file__).with_name("stand_in.py")
ROOT = Path(__file__).parents[3]
MATRIX = """
[matrix]
mechanism = ["blocking"]
fault = ["%s"]
steps = 12
interval = [5]
"""
LIMIT_S = 120.0


def run(tmp_path: Path, kind: str, **more: str) -> tuple[int, str, Path]:
    """Run a cell whose job is a stand-in; return its folder as well."""
    (tmp_path / "m.toml").write_text(MATRIX % kind)
    words = [sys.executable, str(STAND_IN), "run", "m.toml", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    cells = [path.parent for path in (tmp_path / "out").glob("cells/*/cell.json")]
    (folder,) = [c for c in cells if json.loads((c / "cell.json").read_text())["faults"]]
    return done.returncode, done.stdout + done.stderr, folder


def test_a_job_is_killed_whole_and_begun_again(tmp_path: Path) -> None:
    """The stand-in has a process in a session of its own, which would live on for a minute."""
    code, text, folder = run(tmp_path, "job-kill")
    assert code == 0, text
    result = json.loads((folder / "result.json").read_text())
    assert result["attempts"] == 2
    assert (folder / "job-0.killed").exists()
    own = [p for p in Path("/proc").glob("[0-9]*/environ") if str(tmp_path) in reading(p)]
    assert own == []


def reading(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_kill_that_killed_nothing_is_told(tmp_path: Path) -> None:
    code, text, folder = run(tmp_path, "job-kill", STAND_IN_ASKS="0")
    assert code == 1, text
    (told,) = json.loads((folder / "result.json").read_text())["oracle"]["faults"]
    assert told.startswith("fault [job-kill] of step [")
    assert told.endswith("killed no job")


def test_a_lost_disk_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000010-0.pt").touch()
    job.lose_disk(tmp_path / "checkpoints")
    assert list((tmp_path / "checkpoints").iterdir()) == []
    job.lose_disk(tmp_path / "there-was-none")
    assert (tmp_path / "there-was-none").is_dir()


def cell(mechanism: str, kind: str = "job-kill", substrate: str = "soft") -> spec.Cell:
    faults = (spec.Fault(15, 1, "forward", kind),)
    return spec.Cell(substrate, "mlp", mechanism, 2, 40, 10, 1, faults)


def test_a_job_is_resumed_if_there_is_a_line_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "pyft_program", lambda: Path("pyft"))
    lines, resume = str(tmp_path / "lines"), f"--resume {tmp_path}/lines --flush-every 0"
    first = " ".join(job.command(tmp_path, cell("pyft-flush"), 60, 0))
    assert f"--spares 1 --flush {lines} --flush-every 0 -- " in first
    again = " ".join(job.command(tmp_path, cell("pyft-flush"), 60, 1))
    assert "--resume" not in again, "it has no line"
    (tmp_path / "lines" / "line-000001").mkdir(parents=True)
    (tmp_path / "lines" / "line-000001" / "manifest").touch()
    again = job.command(tmp_path, cell("pyft-flush"), 60, 1)
    assert " ".join(again).endswith(resume)
    assert "pyft_lab.matrix.launch" not in again
    assert "--resume" not in job.command(tmp_path, cell("pyft-flush"), 60, 0)
    environment = job.environment_of(tmp_path, cell("pyft-flush"))
    assert environment["PYFT_IMAGE_EVERY"] == "10"
    assert environment[job.MARK] == str(tmp_path)


def test_attempts_are_counted_over_jobs(tmp_path: Path) -> None:
    (tmp_path / "output-job0").touch()
    assert job.command(tmp_path, cell("blocking", substrate="cpu"), 60, 0)[-1] == "0"
    for name in ("output-0-0", "output-0-1", "output-1-0", "output-1-1"):
        (tmp_path / name).touch()
    assert job.command(tmp_path, cell("blocking", substrate="cpu"), 60, 1)[-1] == "2"


@pytest.mark.parametrize(
    ("ended", "mechanism", "lost"),
    [
        ("gave up", "pyft-movable", True),
        (None, "pyft-movable", True),
        ("done", "pyft-movable", False),
        ("timed out", "pyft-movable", False),
        ("gave up", "blocking", False),
    ],
)
def test_which_jobs_are_begun_again(
    tmp_path: Path, ended: str | None, mechanism: str, lost: bool
) -> None:
    if ended:
        (tmp_path / job.ENDED).write_text(json.dumps({"action": ended}))
    assert job.is_lost(tmp_path, cell(mechanism)) is lost


def doctor(monkeypatch: pytest.MonkeyPatch, said: object) -> None:
    """Let `pyft doctor` say something."""
    pyft_movable.why_no_images.cache_clear()

    def answer(*_: object, **__: object) -> object:
        if isinstance(said, Exception):
            raise said
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(pyft_movable.subprocess, "run", answer)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("ok", ""),
        ("warn", "no images of processes: CRIU is missing"),
        (FileNotFoundError("pyft"), "cannot learn whether images can be made: FileNotFound"),
        ("[", "cannot learn whether images can be made: JSONDecodeError"),
    ],
)
def test_without_criu_the_cell_says_so_and_is_not_run(
    monkeypatch: pytest.MonkeyPatch, said: object, why: str
) -> None:
    if said in ("ok", "warn"):
        finding = {"need": pyft_movable.NEED, "status": said, "text": "CRIU is missing"}
        said = json.dumps([{"need": "Slurm"}, finding])
    doctor(monkeypatch, said)
    for name in ("pyft-movable", "pyft-flush", "pyft-parity"):
        found = runner.not_claimed(cell(name, "rank-kill"))
        assert found.startswith(why)
        assert bool(found) is bool(why)
    pyft_movable.why_no_images.cache_clear()


def test_what_is_not_claimed_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor(monkeypatch, AssertionError("it was asked"))
    assert "does not claim" in runner.not_claimed(cell("pyft-movable", "job-kill"))
    assert "does not claim" in runner.not_claimed(cell("pyft-snapshot", "rank-kill"))
    assert "not on substrate cpu" in runner.not_claimed(cell("pyft-movable", "rank-kill", "cpu"))
    assert "needs 2 ranks" in runner.not_claimed(
        spec.Cell("cpu", "mlp", "peers", 1, 40, 10, 1, cell("peers", "rank-kill").faults)
    )


def test_silent_faults_are_claimed_by_name_only() -> None:
    assert not {*SILENT} & {*Mechanism.survives}
    assert {*Mechanism.survives} == {*FAULTS} - {*SILENT}
    claims = {name for name in SHIPPED if {*SILENT} & {*find(name).survives}}
    assert claims == {"pyft-dmr"}
    assert {name for name in SHIPPED if find(name).resume} == {"pyft-flush", "pyft-parity"}


def test_each_fault_needs_a_restart_or_a_repair_of_its_own() -> None:
    faults = [spec.Fault(3, 0, "forward", "rank-kill"), spec.Fault(25, 1, "forward", "rank-kill")]
    # All go back for one that was killed; the report may name any of them.
    repair = {"rank": 0, "fault": "server-killed", "outcome": "recovered", "began": 1.0}
    assert oracle.check_faults(faults, 2, [repair]) == []
    assert oracle.check_faults(faults, 1, [repair]) == ["[1] of [2] faults had no effect"]
    assert oracle.check_faults(faults, 2, []) == ["[1] of [2] faults had no effect"]
    assert oracle.check_faults(faults, 1, [repair, repair]) == []
    ecc = [spec.Fault(3, 0, "forward", "ecc")]  # going back is no repair of a GPU, nor the reverse
    assert oracle.check_faults(ecc, 1, [repair]) != []
    assert oracle.check_faults(faults[:1], 1, [{**repair, "fault": "context-lost"}]) != []
    jobs = [spec.Fault(3, 0, "forward", kind) for kind in OF_JOBS]
    assert oracle.check_faults(jobs, 1, []) == []  # whether these were killed is asked apart


def test_a_restart_after_a_killed_job_is_no_effect_of_another_fault(tmp_path: Path) -> None:
    faults = (spec.Fault(2, 0, "forward", "job-kill"), spec.Fault(4, 1, "forward", "rank-kill"))
    cell = spec.Cell("cpu", "mlp", "blocking", 2, 6, 3, 1, faults)
    for folder in (tmp_path / "run", runner.folder_of(tmp_path, cell.reference)):
        (folder / "ranks").mkdir(parents=True)
        for rank in range(2):
            lines = [{"attempt": 1, "step": s, "loss": "1", "ids": [s], "t": s} for s in range(6)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / "ranks" / f"{rank}.jsonl").write_text(text)
            (folder / f"final-{rank}").write_text("same")
    run = tmp_path / "run"
    (run / job.ENDED).write_text(json.dumps({"action": "done", "attempts": 2}))
    (run / f"job-0{KILLED}").touch()
    (run / "fired-0").write_text('{"t": 1.5}')
    data = runner.judge(tmp_path, run, cell)
    assert data["oracle"]["faults"] == ["fault [rank-kill] of step [4] has not happened"]
    (run / "fired-1").write_text('{"t": 3.5}')
    assert runner.judge(tmp_path, run, cell)["good"]
