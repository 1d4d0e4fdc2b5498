"""The page about newer GPUs, and how tools/check/newer_sass.py counts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tools/gen", "tools/check"):
    sys.path.insert(0, str(ROOT / folder))

import newer_gpus_page as page  # noqa: E402
import newer_sass  # noqa: E402


def test_the_page_is_fresh() -> None:
    found = json.loads(page.PAGE.with_suffix(".json").read_text())
    assert page.PAGE.read_text() == page.page(found), "run tools/gen/newer_gpus_page.py"


def test_names_come_in_the_order_in_which_they_bring_most() -> None:
    kernels = [("A",), ("A",), ("A", "B"), ("B", "C"), ("C",), ()]
    missing = Counter(frozenset(names) for names in kernels)
    assert list(newer_sass.steps(missing)) == [("A", 3, 3), ("C", 2, 4), ("B", 2, 6)]


def test_a_summary_counts_instructions_and_kernels() -> None:
    code = newer_sass.Code(cubins=1)
    for word in (b"x" * 16, b"y" * 16):
        code.number[word] = len(code.number)
    code.times.update({0: 7, 1: 3})
    code.instructions = 10
    code.kernels = [newer_sass.np.array([0]), newer_sass.np.array([0, 1])]
    found = newer_sass.summary(code, {1: "LDG"})
    assert (found["alike"], found["whole"], found["lacking"]) == (7, 1, [["LDG", 3, 1, 2]])


def test_a_share_is_all_only_where_nothing_is_missing() -> None:
    assert page.percent(99999, 100000) == "99.9 %"
    assert page.percent(5, 5) == "100 %"
