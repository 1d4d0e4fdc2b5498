"""The long form of tests/unit/test_agent_inputs.py: `make fuzz MINUTES=60`, or `MUTATIONS=1000000`.

Each target has its share of the time, or as many mutations as all others. An input that makes the
agent execute a line that no input before has reached joins the corpus, a folder which the next run
begins with. An input that would end an agent is kept as `ends-*`, and this program exits with 1.
How many mutations were tried so far, by all runs, is in `counts.json` beside it. In `build/fuzz` it
begins with what is published, and `tools/gen/fuzz_page.py build/fuzz/agent/counts.json` publishes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from agent_inputs import TARGETS, Target
from mutate import mutated
from socket_inputs import Sockets

import pyft

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path("build/fuzz/agent")
PUBLISHED = ROOT / "docs" / "operate" / "fuzz.json"
TRACED = 16  # one input in so many is looked at line by line, which costs much
SAY_S = 60.0
Line = tuple[CodeType, int]


class Lines:
    """Which lines of pyft a call executes."""

    def __init__(self) -> None:
        self._root = str(Path(pyft.__file__).parent)
        self.seen: set[Line] = set()
        self._now: set[Line] = set()

    def _frame(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._root) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self._now.add((frame.f_code, frame.f_lineno))
        return self._line

    def new(self, target: Target, data: bytes) -> bool:
        """Run an input; say whether it came to lines that none before has come to."""
        self._now.clear()
        sys.settrace(self._frame)
        try:
            target.run(data)
        finally:
            sys.settrace(None)
        found = not self._now <= self.seen
        self.seen |= self._now
        return found


def kept(folder: Path, data: bytes, prefix: str = "") -> Path:
    """Write an input down under a name that it alone has."""
    path = folder / f"{prefix}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


@cache
def commit() -> str:
    """Return the commit that is tested, with a plus sign when something is changed."""
    line = ["git", "-C", str(ROOT), "describe", "--always", "--exclude", "*", "--dirty=+"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def counted(folder: Path, name: str, tried: int, fine: bool) -> None:
    """Add to what all runs have tried of a target."""
    path = folder / "counts.json"
    counts = json.loads(path.read_text()) if path.exists() else {}
    row = counts.setdefault(name, {"mutations": 0, "ended": 0})
    row["mutations"] += tried
    row["ended"] += not fine
    row |= {"date": time.strftime("%Y-%m-%d"), "commit": commit()}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    new.replace(path)


def fuzz(target: Target, folder: Path, seconds: float, most: float, seed: int) -> bool:
    """Fuzz one target until either is over; say whether nothing would end an agent."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    before = [p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith("ends-")]
    corpus = target.seeds()
    dice, lines, tried, data = random.Random(seed), Lines(), 0, b""
    end, said = began + seconds, [began, 0]

    def count(fine: bool) -> None:
        """Also meanwhile: a run that is ended from outside has tried something, too."""
        counted(folder.parent, target.name, tried - said[1], fine)
        said[:] = time.monotonic(), tried

    try:
        for data in [*corpus, *before]:
            lines.new(target, data)
        corpus += before
        while tried < most and time.monotonic() < end:
            tried += 1
            data = mutated(dice, corpus, target.words)
            if tried % TRACED:
                target.run(data)
            elif lines.new(target, data):
                corpus.append(data)
                kept(folder, data)
            if time.monotonic() > said[0] + SAY_S:
                count(True)
                print(f"  {target.name}: {tried} mutations so far", flush=True)
    except Exception:
        count(False)
        traceback.print_exc()
        print(f"{target.name}: [{kept(folder, data, 'ends-')}] would end an agent", flush=True)
        return False
    count(True)
    print(
        f"{target.name}: {tried} mutations, corpus of {len(corpus)}, {len(lines.seen)} lines",
        flush=True,
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="for all targets together (60)")
    parser.add_argument("--mutations", type=int, help="of each target, however long that takes")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    targets: dict[str, Any] = {make.name: make for make in (*TARGETS, Sockets)}  # type: ignore[attr-defined]
    parser.add_argument("--target", action="append", choices=targets, help="only this one")
    asked = parser.parse_args()
    chosen = [targets[name] for name in dict.fromkeys(asked.target or targets)]
    print(f"seed {asked.seed}, corpus in [{asked.corpus}]", flush=True)
    if asked.corpus == CORPUS and not (CORPUS / "counts.json").exists():
        CORPUS.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PUBLISHED, CORPUS / "counts.json")
    most = math.inf if asked.mutations is None else asked.mutations
    minutes = asked.minutes or (60.0 if asked.mutations is None else math.inf)
    fine, stderr = True, os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the agent's sentences on damaged messages
    sys.stderr = os.fdopen(stderr, "w")
    for make in chosen:
        target = make()
        seconds = minutes * 60 / len(chosen)
        fine &= fuzz(target, asked.corpus / target.name, seconds, most, asked.seed)
        target.close()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
