"""What of the wheel's code for newer GPUs the soft GPU would decode as it is, and what it lacks.

    newer_sass.py [--every N] [ARCH ...]    print it, and write docs/research/newer-gpus.json

Each distinct instruction is decoded as one of sm_75, and has to print as the vendor's disassembler
prints it for its own architecture. A kernel is *whole* when all its instructions do. Needs what
`tools/check/decode --wheel` needs; some minutes an architecture.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import decode
import numpy as np
import vendor
import wheel
import wheel_check

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/research/newer-gpus.json"
NAME = re.compile(r"(?:@!?U?P\w+ )?(\w+)")
HINT = re.compile(r" \?\w+$")  # of scheduling, printed for sm_120


@dataclass
class Code:
    """The kernels of an architecture, as sets of distinct instructions."""

    cubins: int = 0
    instructions: int = 0
    number: dict[bytes, int] = field(default_factory=dict)  # of a distinct instruction
    times: Counter[int] = field(default_factory=Counter)  # that it occurs
    kernels: list[np.ndarray] = field(default_factory=list)

    def add(self, cubin: bytes) -> None:
        """Add the kernels of a cubin."""
        self.cubins += 1
        for _, text in wheel.text_sections(cubin):
            words = unscheduled(text)
            found, counts = np.unique(words, return_counts=True)
            ids = np.array([self._id(word.tobytes()) for word in found], dtype=np.int32)
            self.times.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
            self.kernels.append(ids)
            self.instructions += len(words)

    def _id(self, word: bytes) -> int:
        return self.number.setdefault(word, len(self.number))


def unscheduled(text: bytes) -> np.ndarray:
    """Return the instructions of a kernel less their scheduling bits (vendor.without_scheduling)."""
    size = vendor.INSTRUCTION_BYTES
    raw = np.frombuffer(text, dtype=np.uint8).reshape(-1, size).copy()
    raw[:, 13] = (raw[:, 13] & 1) | 0xE2
    raw[:, 14], raw[:, 15] = 0x0F, 0
    return raw.view(f"V{size}").reshape(-1)


def judged(code: Code, arch: int, path: Path) -> dict[int, str]:
    """Return the instructions that do not print alike, each with the name that the vendor has."""
    words, found = list(code.number), {}
    for at in range(0, len(words), wheel_check.WORDS_AT_ONCE):
        part = words[at : at + wheel_check.WORDS_AT_ONCE]
        texts = vendor.texts(b"".join(part), path, f"SM{arch}")
        for number, (ours, theirs) in enumerate(texts, at):
            theirs = HINT.sub("", theirs)
            if ours != theirs:
                found[number] = (NAME.match(theirs) or ["?", "?"])[1]
    return found


def summary(code: Code, lacking: dict[int, str]) -> dict[str, Any]:
    """Return the counts, and how much each name that is lacking would bring."""
    unknown = np.zeros(len(code.number), dtype=bool)
    unknown[list(lacking)] = True
    times: Counter[str] = Counter()
    for number, name in lacking.items():
        times[name] += code.times[number]
    missing = Counter(
        frozenset(lacking[number] for number in ids[unknown[ids]].tolist()) for ids in code.kernels
    )
    return {
        "cubins": code.cubins,
        "kernels": len(code.kernels),
        "whole": missing[frozenset()],
        "instructions": code.instructions,
        "alike": code.instructions - sum(times.values()),
        "distinct": len(code.number),
        "lacking": [[name, times[name], *rest] for name, *rest in steps(missing)],
    }


def steps(missing: Counter[frozenset[str]]) -> Iterator[tuple[str, int, int]]:
    """Yield names in the order in which to add them: with how many kernels have it, how many are whole.

    The next one is always what most of the kernels have that are not whole.
    """
    users = Counter(
        name for names, count in missing.items() for name in names for _ in range(count)
    )
    open_, done = dict(missing), missing[frozenset()]
    open_.pop(frozenset(), None)
    while open_:
        wanted: Counter[str] = Counter()
        for names, count in open_.items():
            wanted.update(dict.fromkeys(names, count))
        name, _ = max(wanted.items(), key=lambda one: (one[1], one[0]))
        left: Counter[frozenset[str]] = Counter()
        for names, count in open_.items():
            left[names - {name}] += count
        done += left.pop(frozenset(), 0)
        open_ = dict(left)
        yield name, users[name], done


def look(arch: int, every: int, path: Path) -> dict[str, Any]:
    """Look through the code for one architecture."""
    opened, code = decode.open_wheel(arch), Code()
    for index in range(0, len(opened.entries), every):
        code.add(opened.cubin(index))
    return summary(code, judged(code, arch, path))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archs", nargs="*", type=int, default=[80, 90, 100], metavar="ARCH")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th cubin")
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for arch in arguments.archs:
            seen = {"every": arguments.every} | look(arch, arguments.every, Path(folder) / "code")
            found[str(arch)] = seen
            if not seen["cubins"]:
                decode.refuse(f"the wheel has no code for sm_{arch}")
            shown = {name: value for name, value in seen.items() if name != "lacking"}
            print(f"sm_{arch}: {shown}", flush=True)
            for name, times, kernels, whole in seen["lacking"]:
                print(f"  {name}: {times} times, in {kernels} kernels; with it [{whole}] are whole")
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
