"""Honest mechanisms pass all oracles; for each oracle there is a saboteur that only it catches."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from pyft_lab.api import Mechanism  # noqa: E402
from pyft_lab.command import cli  # noqa: E402
from pyft_lab.matrix.launch import make_memory  # noqa: E402
from pyft_lab.matrix.spec import Fault  # noqa: E402
from pyft_lab.mechanisms import checkpoints, find  # noqa: E402
from pyft_lab.mechanisms.blocking import Blocking  # noqa: E402
from pyft_lab.oracles import oracle  # noqa: E402
from pyft_lab.workloads.points import tear_newest  # noqa: E402
from pyft_lab.workloads.train import train  # noqa: E402

CELL = {"workload": "mlp", "mechanism": "x", "ranks": 1, "steps": 14, "seed": 3, "faults": []}
HONEST = ["none", "blocking", "overlapped", "memory", "dcp-async"]


class Killed(BaseException):
    """Stands for SIGKILL, in the process of the test."""


class OldSampler(Blocking):
    """Restores all but the sampler's cursor: samples are not those of their steps."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        state.sampler.cursor = 0


class SkippedStep(Blocking):
    """Leaves one step out after a restart: nobody trains with its samples."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        state.step += 1 if state.step else 0


class DroppedSample(Blocking):
    """Gives less samples to the first step after a restart."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        window, first = state.sampler.window, state.step

        def less(rank: int, world: int) -> list[int]:
            return window(rank, world)[: -1 if first and state.step == first else None]

        state.sampler.window = less


class OldOptimizer(Blocking):
    """Restores all but the optimizer: its moments are those of a new one."""

    def restore(self, state: Any) -> None:
        fresh = copy.deepcopy(state.optimizer.state_dict())
        super().restore(state)
        state.optimizer.load_state_dict(fresh)


class OldGenerator(Blocking):
    """Restores all but the generator: dropout is another, and so is the loss."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        torch.manual_seed(99)


class FlippedBit(Blocking):
    """Changes the optimizer's state after the last step, which no loss shows."""

    def close(self, state: Any) -> None:
        moments = state.optimizer.state_dict()["state"][0]["exp_avg"]
        moments.view(torch.int32)[0] ^= 1


class Torn(Blocking):
    """Leaves half of a file behind."""

    def close(self, state: Any) -> None:
        tear_newest(self.folder)


@pytest.fixture(scope="module", autouse=True)
def _one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


class GoesBack(Blocking):
    """Stands for pyft's images: all go back in the same attempt, and nothing says so."""

    same_attempt = True


class SameAttempt(OldSampler):
    """Goes back with a sampler that has not: steps that are done again have other samples."""

    same_attempt = True


class NotAll(SkippedStep):
    """Goes back, and goes on with the step after."""

    same_attempt = True


class NothingBack(GoesBack):
    """Says it went back and did the steps between with the parameters that it had."""

    def restore(self, state: Any) -> None:
        super().restore(state)
        for parameter in state.model.parameters():
            parameter.data.mul_(1 + 1e-6 * bool(state.step))


def run(folder: Path, saver: type[Mechanism], faults: bool = True) -> Path:
    """Train, with a fault in the backward pass of step 8 in the first attempt."""
    for name in ("ranks", "checkpoints"):
        (folder / name).mkdir(parents=True)
    make_memory(folder, 1, saver.places)

    def point(step: int, moment: str) -> None:
        if (step, moment) == (8, "backward"):
            raise Killed

    def nothing(step: int, moment: str) -> None:
        pass

    points: list[Callable[[int, str], None]] = [point, nothing] if faults else [nothing]
    for attempt, at in enumerate(points):
        try:
            mechanism = saver(folder / "checkpoints", 0, 5)
            number = 0 if getattr(saver, "same_attempt", False) else attempt
            train(folder, CELL, number, 0, mechanism, at, torch.device("cpu"), lambda what: None)
        except Killed:
            if mechanism.name in ("overlapped", "dcp-async"):
                mechanism.close(None)  # a thread of a dead process would write no more
    return folder


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("reference") / "r", Mechanism, faults=False)


def judge(folder: Path, reference: Path) -> dict[str, bool]:
    """Return which oracles find something."""
    found = asdict(oracle.judge(folder, reference, 1, CELL["steps"]))
    return {name: bool(problems) for name, problems in found.items()}


@pytest.mark.parametrize("name", HONEST)
def test_honest_mechanisms_pass(tmp_path: Path, reference: Path, name: str) -> None:
    folder = run(tmp_path / "x", find(name))
    assert not any(judge(folder, reference).values())
    assert oracle.times(folder)["replayed"] == (8 if name == "none" else 3)
    lines = oracle.lines_of(folder, 0)
    fired = next(a["t"] for a, b in zip(lines, lines[1:], strict=False) if b["attempt"])
    lost = oracle.lost_seconds(lines, fired)
    assert lost is not None
    assert lost > 0
    assert oracle.lost_seconds(lines, lines[-1]["t"]) is None


@pytest.mark.parametrize(
    ("saver", "caught"),
    [
        (OldSampler, {"samples", "losses", "state"}),
        (SkippedStep, {"samples", "losses", "state"}),
        (DroppedSample, {"samples", "losses", "state"}),
        (SameAttempt, {"samples", "losses", "state"}),
        (NotAll, {"samples", "losses", "state"}),
        (NothingBack, {"losses", "state"}),
        (OldOptimizer, {"losses", "state"}),
        (OldGenerator, {"losses", "state"}),
        (FlippedBit, {"state"}),
        (Torn, {"integrity"}),
    ],
)
def test_saboteurs_are_caught(
    tmp_path: Path, reference: Path, saver: type[Mechanism], caught: set[str]
) -> None:
    found = judge(run(tmp_path / "x", saver), reference)
    assert {name for name, bad in found.items() if bad} == caught


def test_steps_that_are_done_again_in_one_attempt_count_once(
    tmp_path: Path, reference: Path
) -> None:
    folder = run(tmp_path / "x", GoesBack)
    assert not any(judge(folder, reference).values())
    lines = oracle.lines_of(folder, 0)
    assert [line["step"] for line in lines] == [*range(8), *range(5, 14)]
    assert oracle.times(folder)["replayed"] == 3
    lost = oracle.lost_seconds(lines, lines[7]["t"])
    assert lost is not None
    assert lost >= lines[11]["t"] - lines[7]["t"] - oracle.step_seconds(lines)


def test_a_fault_without_an_effect_is_no_survived_fault(tmp_path: Path) -> None:
    faults = [Fault(3, 0, "forward", "ecc"), Fault(5, 1, "forward", "sticky")]
    own = {"rank": 0, "fault": "memory-uncontained", "outcome": "recovered", "began": 1.0}
    peer = {**own, "rank": 1, "fault": "peer-failed"}
    other = {**own, "rank": 1, "fault": "context-lost", "began": 0.5}
    for number, found in enumerate(([own, peer], [other])):  # of a job, and of one after it
        report = tmp_path / f"report-{number}.json"
        report.write_text(json.dumps({"recovery": {"faults": found}}))
        if not number:
            told = oracle.check_faults(faults, 1, oracle.repairs(tmp_path))
            assert told == ["[1] of [2] faults had no effect"]
    (tmp_path / "report-2.json").touch()  # that of a job that was killed
    assert oracle.repairs(tmp_path) == [other, own]
    assert oracle.check_faults(faults, 1, oracle.repairs(tmp_path)) == []
    assert oracle.check_faults(faults, 3, []) == []
    assert oracle.check_faults(faults, 2, []) != []


def test_a_run_that_does_not_end_is_wrong(tmp_path: Path, reference: Path) -> None:
    (tmp_path / "x" / "ranks").mkdir(parents=True)
    found = judge(tmp_path / "x", reference)
    assert {name for name, bad in found.items() if bad} == {"samples", "losses", "state"}


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path) -> None:
    folder = run(tmp_path / "x", Torn, faults=False) / "checkpoints"
    packed = checkpoints.read_checkpoint(folder)
    assert packed is not None
    assert packed["step"] == 5  # 10 is torn
    tear_newest(folder)  # the newest by time is the torn one
    for path in folder.glob("*.pt"):
        os.truncate(path, 10)
    assert checkpoints.read_checkpoint(folder) is None


def test_shares_of_a_checkpoint_are_whole_at_the_end(tmp_path: Path) -> None:
    for name in ("step-000004", "step-000008"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "__0_0.distcp").touch()
    assert oracle.check_integrity(tmp_path) != []
    (tmp_path / "checkpoints" / "step-000008" / ".metadata").touch()
    assert oracle.check_integrity(tmp_path) == []  # the older one was given up


def test_steps_of_a_fault_are_counted_until_the_first_new_one() -> None:
    steps = [0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6]  # faults after 3 and after 5
    lines = [{"step": step, "t": float(t)} for t, step in enumerate(steps)]
    assert [oracle.steps_again(lines, at) for at in (1.5, 3.5, 7.5)] == [0, 2, 2]


def test_a_rank_ends_with_its_runner(tmp_path: Path) -> None:
    """Started for a runner that is gone already, and by one that is killed."""
    code = "from pyft_lab.workloads.train import end_with; end_with(%s); print('on', flush=True); "
    gone = [sys.executable, "-c", code % "1"]
    assert subprocess.run(gone, capture_output=True, timeout=100).returncode == 1
    inner = (code % "os.getppid()").replace("from", "import os, time; from", 1) + "time.sleep(100)"
    outer = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    runner = subprocess.Popen([sys.executable, "-c", outer, inner], stdout=subprocess.PIPE)
    assert runner.stdout is not None
    assert runner.stdout.readline() == b"on\n"
    runner.kill()
    assert runner.stdout.read() == b""  # the rank has ended as well: nothing holds the pipe
    assert runner.wait() == -9


def test_the_command_runs_cells_once_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.toml"
    path.write_text('[matrix]\nmechanism = ["blocking"]\nranks = [1]\nsteps = 8\ninterval = [3]\n')
    words = ["run", str(path), "--out", str(tmp_path / "out")]
    for expected in ("2 cells run, 0 kept", "0 cells run, 2 kept"):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        out = capsys.readouterr().out
        said = (p.read_text(errors="replace") for p in (tmp_path / "out").rglob("output*"))
        assert ended.value.code == 0, "\n".join([out, *said])
        assert expected in out
    results = [json.loads(p.read_text()) for p in (tmp_path / "out").rglob("result.json")]
    assert sorted((r["attempts"], len(r["faults"])) for r in results) == [(1, 0), (2, 1)]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "blocking, mlp, rank-kill, seed 1" in page
    assert "http" not in page
    # What a killed runner leaves is no result: the cell runs anew, and only that one.
    done = next(
        p for p in (tmp_path / "out").rglob("result.json") if '"attempts": 1' in p.read_text()
    )
    done.unlink()
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "1 cells run, 1 kept" in capsys.readouterr().out
