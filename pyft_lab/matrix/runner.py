"""Runs cells, each in its folder; what is there whole is not run again.

A cell is run in a folder of its own, which gets the cell's name when all is there. A runner that is
killed goes on with the first cell that has none; that cell begins anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyft_lab.api import AWAY, BACK, RESCALE, STORAGE
from pyft_lab.errors import LabError
from pyft_lab.matrix import disk, job, storage
from pyft_lab.matrix.spec import Cell, Fault
from pyft_lab.mechanisms import find
from pyft_lab.oracles import absence_oracle, oracle, silent_oracle, storage_oracle


@dataclass(frozen=True)
class Result:
    """What a cell came to."""

    cell: Cell
    folder: Path
    data: dict[str, Any]
    cached: bool
    dropped: tuple[str, ...] = ()  # what was removed to keep a bound of the disk, a sentence each


def folder_of(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.key


def not_claimed(cell: Cell) -> str:
    """Return why a cell is not run: its mechanism does not claim what is asked for."""
    mechanism = find(cell.mechanism)
    kinds = {fault.kind for fault in cell.faults} - {*mechanism.survives, RESCALE, AWAY, BACK}
    if kinds:
        return f"does not claim to survive {', '.join(sorted(kinds))}"
    if not mechanism.writes and any(fault.kind in STORAGE for fault in cell.faults):
        return "writes nothing that a fault of storage could hit"
    if cell.ranks_after and not mechanism.resizes:
        return "goes on with as many ranks only"
    if cell.ranks < mechanism.least_ranks:
        return f"needs {mechanism.least_ranks} ranks"
    if len(cell.faults) > (mechanism.most_faults or len(cell.faults)):
        return f"can have {mechanism.most_faults} fault in a run of the lab"
    if cell.substrate not in mechanism.substrates:
        return f"not on substrate {cell.substrate}"
    return mechanism.lacks()


def check_packages(cell: Cell) -> None:
    """Raise if a package is missing that a mechanism needs."""
    for name in find(cell.mechanism).needs:
        if importlib.util.find_spec(name) is None:
            told = f"mechanism [{cell.mechanism_name}] needs the package [{name}]"
            raise LabError(f"{told}: pip install {name}, or leave it out")


def judge(out: Path, folder: Path, cell: Cell) -> dict[str, Any]:
    """Return what a cell came to."""
    ended = read_json(folder / job.ENDED) or {"action": "died", "attempts": job.attempts(folder)}
    reference = folder if cell == cell.reference else folder_of(out, reference_of(folder, cell))
    most, left_out = max(cell.ranks, cell.last_ranks), 0
    repairs = oracle.repairs(folder)
    if find(cell.mechanism).one_by_one:
        of = (cell.ranks, cell.steps, cell.faults)
        whole = folder_of(out, cell.reference)
        verdict, left_out = absence_oracle.judge(folder, reference, whole, *of)
        costs = absence_oracle.costs(folder, cell.faults, cell.ranks)
    else:
        told = told_of(folder, cell)
        verdict = oracle.judge(folder, reference, most, cell.steps, cell.last_ranks, told)
        costs = oracle.costs(folder, cell.faults, repairs)
    verdict.faults += oracle.check_faults(cell.faults, ended["attempts"], repairs)
    verdict.faults += oracle.check_fired(folder, cell.faults)
    verdict.faults += oracle.check_kills(folder, cell.faults)
    wrong, without = storage_oracle.check(folder, cell.faults, ended["attempts"])
    verdict.integrity, verdict.faults = verdict.integrity + wrong, verdict.faults + without
    return {
        "status": ended["action"],
        "said": {} if ended["action"] == "done" else last_words(folder),
        "attempts": ended["attempts"],
        "oracle": asdict(verdict),
        "good": verdict.good and ended["action"] == "done",
        "load1": os.getloadavg()[0],
        "left_out": left_out,
        "faults": costs,
        **oracle.times(folder, most),
    }


def told_of(folder: Path, cell: Cell) -> oracle.Told:
    """Return for which steps a mechanism asks for nothing of what the script was told."""
    if not find(cell.mechanism).told_before:
        return frozenset()
    lines = [oracle.lines_of(folder, rank) for rank in range(cell.ranks)]
    return silent_oracle.told_before(folder, cell.faults, lines)


def last_words(folder: Path) -> dict[str, str]:
    """Return the last line of each output of a run, by file name; silent ones are left out."""
    texts = {path.name: path.read_text(errors="replace") for path in folder.glob("output*")}
    return {name: text.splitlines()[-1] for name, text in sorted(texts.items()) if text.strip()}


def reference_of(folder: Path, cell: Cell) -> Cell:
    """Return the cell that a run is judged against."""
    if find(cell.mechanism).one_by_one:
        return cell.without(absence_oracle.absences(folder, cell.ranks, cell.steps))
    if not cell.ranks_after or cell.planned:
        return cell.reference
    again = [line["step"] for line in oracle.lines_of(folder, 0) if line["attempt"]]
    return cell.stopped_at(min(again, default=0))


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def run_cell(out: Path, cell: Cell, timeout_s: float, rerun_failed: bool = False) -> Result:
    """Run one cell, or return what is there of it; its reference has been run before.

    It is tried once more if its time was up, on a machine that does other things as well.
    """
    folder = folder_of(out, cell)
    if why := not_claimed(cell):
        return Result(cell, folder, {"status": why, "good": True, "claimed": False}, cached=True)
    done = read_json(folder / "result.json")
    if done and (done["good"] or not rerun_failed):
        return Result(cell, folder, done, cached=True)
    for left in (folder, *folder.parent.glob(f"{cell.key}.*")):
        shutil.rmtree(left, ignore_errors=True)
    work = folder.with_suffix(f".{os.getpid()}")
    for attempt in range(2):
        shutil.rmtree(work, ignore_errors=True)
        for name in ("ranks", "checkpoints"):
            (work / name).mkdir(parents=True)
        (work / "cell.json").write_text(json.dumps(asdict(cell), indent=1))
        begin = time.monotonic()
        job.supervise(work, cell, timeout_s)
        if (reference := reference_of(work, cell)) not in (cell, cell.reference):
            run_cell(out, reference, timeout_s)
        data = {"claimed": True, "run_s": time.monotonic() - begin, **judge(out, work, cell)}
        data["tries"] = attempt + 1
        data |= {"version": cell.version, "ended": time.time()}
        if data["status"] not in ("timed out", "died"):
            break
    data["disk_mb"] = disk.size(work) / disk.MB
    if data["good"]:
        disk.slim(work)
    (work / "result.json").write_text(json.dumps(data, indent=1))
    work.rename(folder)
    dropped = () if data["good"] else disk.bound_bad(bad_cells(out))
    return Result(cell, folder, data, cached=False, dropped=tuple(dropped))


def bad_cells(out: Path) -> list[Path]:
    """Return the folders of cells that are done and not good."""
    done = (path for path in out.glob("cells/*/result.json") if "." not in path.parent.name)
    return [path.parent for path in done if not read_json(path)["good"]]


def needed_bytes(results: list[Result], substrate: str) -> int:
    """Return what the next cell may take, by those that were run before."""
    sizes = [r.data["disk_mb"] for r in results
             if r.cell.substrate == substrate and "disk_mb" in r.data]  # fmt: skip
    most = disk.GROWTH * max(sizes) if sizes else disk.FIRST_MB[substrate]
    return int(max(most, disk.FIRST_MB["cpu"]) * disk.MB)


def run(
    out: Path, cells: list[Cell], timeout_s: float, rerun_failed: bool = False
) -> Iterator[Result]:
    """Run all cells, one after the other: they are timed."""
    (out / "cells").mkdir(parents=True, exist_ok=True)
    disk.clear_left(out / "cells")
    for cell in cells:
        if not read_json(folder_of(out, cell) / "result.json") and not not_claimed(cell):
            disk.check_free(out, needed_bytes(load(out), cell.substrate))
            storage.check_tools({fault.kind for fault in cell.faults})
            check_packages(cell)
        yield run_cell(out, cell, timeout_s, rerun_failed)


def load(out: Path) -> list[Result]:
    """Return the results that a folder has: of each substrate those of the newest version."""
    found = []
    for path in whole(out):
        facts = read_json(path.with_name("cell.json"))
        facts["faults"] = tuple(Fault(**fault) for fault in facts["faults"])
        found.append(Result(Cell(**facts), path.parent, read_json(path), cached=True))
    newest = {r.cell.substrate: r.data.get("version") for r in sorted(found, key=ended)}
    found = [r for r in found if r.data.get("version") == newest[r.cell.substrate]]
    last = {r.cell: r.folder for r in sorted(found, key=ended)}  # a mechanism may have changed
    return [r for r in found if r.folder == last[r.cell]]


def ended(result: Result) -> float:
    return float(result.data.get("ended", 0.0))


def whole(out: Path) -> list[Path]:
    """Return the files of all results; one whose runner is about to rename it is none yet."""
    return [p for p in sorted(out.glob("cells/*/result.json")) if "." not in p.parent.name]


def older(out: Path, results: list[Result]) -> list[str]:
    """Return a sentence if a folder has more than was loaded."""
    left = len(whole(out)) - len(results)
    return [f"[{left}] results of other versions or machines are left out"] if left else []
