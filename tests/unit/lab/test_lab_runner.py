"""What a run leaves on the disk, and that one that was killed goes on where it was."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyft_lab.errors import LabError
from pyft_lab.matrix import disk, runner, spec

STAND_IN = Path(__file__).with_name("stand_in.py")
ROOT = Path(__file__).parents[3]
MATRIX = """
[matrix]
mechanism = ["none", "blocking", "memory"]
steps = 12
interval = [5]
seed = %s
"""
TIMES = ("step_s", "wall_s", "run_s", "load1", "lost_s", "phases_s")  # of results and faults
LIMIT_S = 120.0


def start(tmp_path: Path, out: str, seeds: list[int], **more: str) -> subprocess.Popen[str]:
    matrix = tmp_path / "m.toml"
    matrix.write_text(MATRIX % seeds)
    words = [sys.executable, str(STAND_IN), "run", str(matrix), "--out", str(tmp_path / out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def outcome(tmp_path: Path, out: str, seeds: list[int], **more: str) -> tuple[int, str]:
    running = start(tmp_path, out, seeds, **more)
    text, _ = running.communicate(timeout=LIMIT_S)
    return running.returncode, text


def rows(out: Path) -> list[dict[str, object]]:
    """Return the results of a run without their times."""
    found = []
    for name in ("results", "faults"):
        lines = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        found += [{k: v for k, v in line.items() if k not in TIMES} for line in lines]
    return found


def folders(out: Path) -> list[Path]:
    return [path.parent for path in out.glob("cells/*/cell.json")]


def test_what_a_rank_said_last_is_told_of_a_run_that_gave_up(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, "out", [1], STAND_IN_ENDS="blocking")
    assert code == 1
    (told,) = [line for line in text.splitlines() if "RuntimeError" in line]
    assert told.endswith(", output-0-1: RuntimeError: connection [reset]")
    assert told.startswith("blocking"), told


def test_a_good_cell_keeps_what_reports_need_and_a_bad_one_its_log_up_to_a_bound(
    tmp_path: Path,
) -> None:
    log = {"STAND_IN_LOG": str(3 * disk.MB)}
    code, text = outcome(tmp_path, "out", [1], **log, STAND_IN_BAD="blocking")
    assert code == 1, text
    sizes = {}
    for folder in folders(tmp_path / "out"):
        name = json.loads((folder / "cell.json").read_text())["mechanism"]
        good = json.loads((folder / "result.json").read_text())["good"]
        assert good is (name != "blocking")
        sizes.setdefault(good, []).append(disk.size(folder))
    assert max(sizes[True]) < 200_000
    assert min(sizes[False]) > 3 * disk.MB
    (bad,) = [f for f in folders(tmp_path / "out") if disk.size(f) > disk.MB]
    assert disk.bound_bad([bad], 4 * disk.MB) == []
    (told,) = disk.bound_bad([bad], 2 * disk.MB)
    assert f"[3 MB] of logs and checkpoints of [{bad.name}] are dropped" in told
    assert (bad / "dropped").read_text().strip() == told
    assert disk.size(bad) < 200_000
    # What is left is enough for a report.
    (tmp_path / "out" / "results.jsonl").unlink()
    report = [sys.executable, "-m", "pyft_lab", "report", "--out", str(tmp_path / "out")]
    assert subprocess.run(report, cwd=ROOT, capture_output=True).returncode == 1
    assert len(rows(tmp_path / "out")) == 4 + 3


def test_the_newest_bad_cells_keep_their_logs(tmp_path: Path) -> None:
    made = []
    for number in range(3):
        (tmp_path / f"{number}" / "log").mkdir(parents=True)
        (tmp_path / f"{number}" / "log" / "ring").write_bytes(b"x" * disk.MB)
        os.utime(tmp_path / f"{number}", ns=(0, number))
        made.append(tmp_path / f"{number}")
    told = disk.bound_bad(made, 2 * disk.MB + 8192)
    assert [(path / "log").exists() for path in made] == [False, True, True]
    assert len(told) == 1


def test_a_disk_that_is_short_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.check_free(tmp_path, 1)
    cells = spec.expand(spec.read(Path("cpu.toml")))
    none_free = SimpleNamespace(free=5 * disk.MB)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: none_free)
    monkeypatch.setattr(runner.job, "supervise", lambda *_: pytest.fail("it was run"))
    with pytest.raises(LabError, match=r"has \[5 MB\] free and the next cell may take \[64 MB\]"):
        list(runner.run(tmp_path, cells, 1))


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    seeds, slow, draw = [1, 2], {"STAND_IN_S": "0.4"}, random.Random(7)
    code, text = outcome(tmp_path, "whole", seeds)
    assert code == 0, text
    done = 0
    for _ in range(3):
        running = start(tmp_path, "out", seeds, **slow)
        wait_for_a_cell(tmp_path / "out", running)
        time.sleep(draw.random() * 0.4)
        running.kill()
        running.communicate(timeout=LIMIT_S)
        assert running.returncode == -9, "it ended before it was killed"
        now = len(list((tmp_path / "out").glob("cells/*/result.json")))
        assert now >= done
        done = now
    assert done < 8
    code, text = outcome(tmp_path, "out", seeds, **slow)
    assert code == 0, text
    assert f"{done} kept" in text
    assert rows(tmp_path / "out") == rows(tmp_path / "whole")
    assert not list((tmp_path / "out").glob("cells/*.*"))
    code, text = outcome(tmp_path, "out", seeds, **slow)
    assert "0 cells run, 8 kept" in text


def test_a_report_is_of_one_version(tmp_path: Path) -> None:
    code, text = outcome(tmp_path, "out", [1, 2])
    assert code == 0, text
    kept = {r.folder for r in runner.load(tmp_path / "out")}
    assert len(kept) == 8
    for number, folder in enumerate(sorted(kept)[:3]):  # as an older version has left them
        old = shutil.copytree(folder, folder.with_name(f"{number:016x}"))
        data = json.loads((old / "result.json").read_text())
        data |= {"version": "older", "ended": data["ended"] - 1000, "wall_s": 1e9}
        (old / "result.json").write_text(json.dumps(data))
    again = shutil.copytree(folder, folder.with_name("f" * 16))  # its mechanism has changed since
    data = json.loads((again / "result.json").read_text())
    (again / "result.json").write_text(json.dumps(data | {"ended": data["ended"] + 1}))
    results = runner.load(tmp_path / "out")
    assert {r.folder for r in results} == kept - {folder} | {again}
    assert runner.older(tmp_path / "out", results) == [
        "[4] results of other versions or machines are left out"
    ]


def wait_for_a_cell(out: Path, running: subprocess.Popen[str]) -> None:
    """Wait until this runner has begun a cell."""
    last = time.monotonic() + LIMIT_S
    while not list(out.glob(f"cells/*.{running.pid}")):
        assert running.poll() is None
        assert time.monotonic() < last
        time.sleep(0.01)
