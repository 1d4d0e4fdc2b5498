"""Replays that compute something else than the script has seen: told apart, and never hidden."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from job import TRAIN, Job
from recovery_run import STEPS, command, lines, undisturbed

PROGRAM = str(Path(__file__).with_name("programs") / "nondeterministic.py")
# Within the step, after the values that differ have been printed.
FAULT = ("--inject", "server-kill,rank=0,step=1,call=32")
Start = Callable[..., tuple[int, Job, dict]]


def run(
    jobs: list[Job],
    folder: Path,
    what: str,
    *options: str,
    ranks: int = 1,
    argv: tuple[str, ...] = (),
    **environment: str,
) -> tuple[int, Job, dict]:
    """Run the program, or another one; return its exit code, the job, and the report."""
    folder.mkdir(exist_ok=True)
    report = folder / "report.json"
    line = ("--gpus", f"soft:{ranks}", "--report", str(report), *options)
    words = argv or command(PROGRAM, ranks, ("--read", what))
    jobs.append(Job(folder, words, options=line, environment=environment))
    code = jobs[-1].wait(180)
    jobs[-1].assert_nothing_left()
    return code, jobs[-1], json.loads(report.read_text())["recovery"]


@pytest.fixture
def start() -> Iterator[Start]:
    jobs: list[Job] = []
    yield partial(run, jobs)
    for job in jobs:
        job.kill_everything()


def seen(found: dict) -> list[tuple[str, str, str]]:
    """Return class, mode and verdict of each fault."""
    return [(fault["fault"], fault["mode"], fault["verdict"]) for fault in found["faults"]]


def test_last_digits_are_reported_if_asked_for(start: Start, tmp_path: Path) -> None:
    code, other, _ = start(tmp_path / "undisturbed", "loss")
    assert code == 0
    code, job, found = start(tmp_path, "loss", *FAULT, "--divergence", "report")
    assert code == 0, job.errors()
    assert lines(job) == lines(other), "what is deterministic is what it would have been"
    assert seen(found) == [("server-killed", "normal", "equivalent")], "no server ends for that"
    assert found["verdict"] == "equivalent"
    last = found["faults"][-1]
    assert (last["differed"], last["compared"] > 1) == (1, True)
    assert "valid, not bit-identical" in job.errors()
    assert f"the first at entry [{last['differed_seq']}]" in job.errors()


def test_last_digits_at_all_ranks_end_in_one_replay_of_all(start: Start, tmp_path: Path) -> None:
    noise = {"SOFTGPU_NOISE": "7"}
    code, other, _ = start(tmp_path / "undisturbed", "total", ranks=2, **noise)
    assert code == 0
    fault = ("--inject", "server-kill,rank=0,step=1,call=40")
    options = (*fault, "--divergence", "report")
    code, job, found = start(tmp_path, "total", *options, ranks=2, PYFT_REPLAY="all", **noise)
    assert code == 0, job.errors()
    assert lines(job) == lines(other)
    assert {fault[0] for fault in seen(found)} == {"server-killed", "peer-failed"}
    assert [fault["rank"] for fault in found["faults"]] == [0, 1], "one replay each"
    assert [fault["verdict"] for fault in found["faults"]] == ["equivalent", "equivalent"]


def test_last_digits_end_a_strict_job(start: Start, tmp_path: Path) -> None:
    code, job, found = start(tmp_path, "loss", *FAULT)
    assert code != 0
    assert seen(found)[:2] == [("server-killed", "normal", ""), ("diverged", "serial", "")]
    assert seen(found)[2:] == [("diverged", "normal", "diverged")], "it was not replaced"
    assert found["verdict"] == "diverged"
    assert found["faults"][-1]["outcome"].startswith("given up: exit [77], entry [")
    sentence = next(line for line in job.errors().splitlines() if "it is not replaced" in line)
    for words in ("rank 0", "cudaMemcpyAsync gives [4] bytes [0x", "the program was given [0x"):
        assert words in sentence


def test_a_count_ends_every_job(start: Start, tmp_path: Path) -> None:
    code, job, found = start(tmp_path, "count", *FAULT, "--divergence", "report")
    assert code != 0
    assert found["verdict"] == "diverged"
    assert "it may have decided by that" in job.errors()


def test_eight_counts_end_every_job_as_one_does(start: Start, tmp_path: Path) -> None:
    code, job, found = start(tmp_path, "counts", *FAULT, "--divergence", "report")
    assert code != 0
    assert [fault["fault"] for fault in found["faults"]][1:] == ["diverged", "diverged"]
    assert found["verdict"] == "diverged"
    assert "gives [64] bytes with, at [0], [0x" in job.errors()
    assert "it may have decided by that" in job.errors()


# The second launch of that kernel is in the step in which the server is killed later on.
SILENT = {"SOFTGPU_FAULT": "flip,result=changed,byte=3,bit=5,kernel=pow,in=2"}


def test_a_loss_that_was_told_wrong_is_corrected(start: Start, tmp_path: Path) -> None:
    """The replay is right: no job ends because of that."""
    code, other, _ = start(tmp_path / "undisturbed", "nothing")
    assert code == 0
    code, job, found = start(tmp_path, "nothing", *FAULT, "--divergence", "report", **SILENT)
    assert code == 0, job.errors()
    told, right = lines(job), lines(other)
    assert len([pair for pair in zip(told, right, strict=True) if pair[0] != pair[1]]) == 1
    assert told[0] == right[0], "the parameters are right"
    assert seen(found) == [("server-killed", "normal", ""), ("diverged", "serial", "corrected")]
    assert found["verdict"] == "corrected"
    last = found["faults"][-1]
    assert last["corrected"] == 1
    for words in (" gives [4] bytes [0x", "the program was given [0x"):
        assert words in last["corrected_text"]
        assert words in job.errors()
    assert "told [1] wrong value" in job.errors()


def test_a_strict_job_says_that_the_replays_agree(start: Start, tmp_path: Path) -> None:
    code, job, found = start(tmp_path, "nothing", *FAULT, "--divergence", "strict", **SILENT)
    assert code != 0
    assert found["verdict"] == "diverged"
    assert "two replays agree that this was wrong" in job.errors()


def test_what_a_rank_puts_into_collectives_is_compared(start: Start, tmp_path: Path) -> None:
    fault = ("--inject", "server-kill,rank=1,step=1,call=32")
    code, job, found = start(tmp_path, "sum", *fault, "--divergence", "report", ranks=2)
    assert code == 0, job.errors()
    assert seen(found) == [("server-killed", "normal", ""), ("diverged", "serial", "equivalent")]
    assert "or one before it: rank [1] repeats operation [" in found["faults"][1]["evidence"]
    assert len(set(lines(job))) * 2 == len(lines(job)), "both ranks have the same"


def test_a_cut_that_was_interrupted_is_compared(start: Start, tmp_path: Path) -> None:
    argv = (sys.executable, TRAIN, *STEPS)
    code, job, found = start(tmp_path, "", argv=argv, PYFT_FAULT="store.before_publish:3")
    assert code == 0, job.errors()
    assert tuple(lines(job)) == undisturbed(TRAIN, 1, STEPS)
    (fault,) = found["faults"]
    assert (fault["fault"], fault["verdict"], fault["cut"]) == ("server-killed", "exact", 2)
    assert fault["compared"] > 30, "each block that the committed snapshot has"
