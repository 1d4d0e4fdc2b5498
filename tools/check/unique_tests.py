"""Refuse two test files with one name: pytest imports each by its name, and collects neither."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def problems(tests: Path) -> Iterator[str]:
    """Yield one sentence per name that several files below a folder have."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        found[path.name].append(path.relative_to(tests.parent).as_posix())
    for name, paths in found.items():
        if len(paths) > 1:
            yield f"{name}: pytest needs one name for each of {', '.join(paths)}"


def main() -> int:
    found = list(problems(ROOT / "tests"))
    print("\n".join(found) or "tests: each file has a name of its own")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
