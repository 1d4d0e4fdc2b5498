"""`pyft status`, `pyft coverage` and `pyft trace --follow`, of a job that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for

PROGRAM = str(Path(__file__).with_name("programs") / "sleeper.py")


def pyft(*arguments: str) -> str:
    done = subprocess.run([PYFT, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job in `tmp_path` that has used its GPU and now sleeps."""
    process = subprocess.Popen(
        [PYFT, "run", "--gpus", "soft:1", "--spares", "1", "--log-dir", str(tmp_path), "--"]
        + [sys.executable, PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.communicate(timeout=60)


def test_a_live_job_is_shown_and_followed(sleeper: subprocess.Popen[str], tmp_path: Path) -> None:
    (job,) = json.loads(pyft("status", "--json", str(tmp_path)))
    assert (job["gpus"], job["spares"]) == ("soft:1", 1)
    (channel,) = job["channels"]
    assert channel["status"] == "serving"
    assert channel["position"] > 0 == channel["lag"]
    assert channel["waits"] == []
    assert 0 <= channel["heartbeat_age"] < 30
    assert "rank 0" in pyft("status", str(tmp_path))
    follower = subprocess.Popen(
        [PYFT, "trace", "--follow", "--deterministic", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = sleeper.communicate(timeout=60)
    assert out == "sum 8.0\n"
    followed, _ = follower.communicate(timeout=60)
    assert followed.splitlines()[-1].endswith("GOODBYE()")
    assert follower.returncode == 0
    rows = json.loads(pyft("coverage", "--json", str(tmp_path)))
    counts = {row["name"]: row["count"] for row in rows}
    assert counts["cudaMalloc"] >= 1
    assert all(row["support"] in ("full", "partial") for row in rows)


def test_four_ranks_of_which_three_wait(tmp_path: Path) -> None:
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    program = str(Path(PROGRAM).with_name("late_rank.py"))
    go = tmp_path / "go"
    command = [torchrun, "--standalone", "--nproc-per-node", "4", program, str(go)]
    job = Job(tmp_path, command, options=["--gpus", "soft:4"])

    def channels() -> list[dict]:
        (state,) = json.loads(pyft("status", "--json", str(job.log_dir)))
        return sorted(state["channels"], key=lambda channel: channel["rank"])

    def waiting() -> list[dict]:
        return [c for c in channels() if any(w["seconds"] > 0.2 for w in c["waits"])]

    try:
        wait_for(lambda: job.output().count("ready") == 4, 120, f"four ranks: {job.errors()}")
        wait_for(lambda: [c["rank"] for c in waiting()] == [1, 2, 3], 30, f"{channels()}")
        found = channels()
        assert [(c["rank"], c["device"], c["status"]) for c in found] == [
            (rank, rank, "serving") for rank in range(4)
        ]
        assert len({c["server_pid"] for c in found}) == 4
        for channel in found:
            assert 0 < channel["log_bytes"] <= channel["position"]
            assert channel["lag"] >= 0
        for channel in found[1:]:  # for the stream that the collective holds up
            (wait,) = channel["waits"]
            assert ", behind [" in wait["what"], channel
            assert "ncclAllReduce(" in wait["what"], channel
            assert wait["thread"] >= 0
        assert found[0]["waits"] == []
        text = pyft("status", str(job.log_dir))
        assert text.count(" waits ") == 3
        assert "    ring position " in text
        go.touch()
        assert job.wait(60) == 0, job.errors()
        assert job.output().count("has 16.0") == 4
    finally:
        job.kill_everything()


def test_no_such_job() -> None:
    done = subprocess.run([PYFT, "status", "77"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "pyft: [77] is no running job\n"


def test_everything_known_is_listed() -> None:
    text = pyft("coverage", "--all")
    assert "cudaMalloc " in text
    assert "cuLinkCreate_v2" in pyft("coverage", "--all", "--unsupported")


@pytest.mark.parametrize(("mode", "code"), [("warn", 0), ("error", 134)])
def test_unsupported_calls(mode: str, code: int) -> None:
    done = subprocess.run(
        [PYFT, "run", "--gpus", "soft:1", "--unsupported", mode, "--"]
        + [sys.executable, PROGRAM, "unsupported"],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "pyft: [cuLinkCreate_v2] is not supported" in done.stderr
    assert ("code 801" in done.stdout) == (mode == "warn")
