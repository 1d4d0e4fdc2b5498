"""The page about security says how many mutations `make fuzz` has tried of each input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "gen"), str(ROOT / "tests" / "fuzz")]

import fuzz_page  # noqa: E402
from agent_inputs import TARGETS  # noqa: E402
from socket_inputs import Sockets  # noqa: E402


def test_the_page_is_made_from_the_counts() -> None:
    text = fuzz_page.PAGE.read_text()
    assert text == fuzz_page.page(text), "python tools/gen/fuzz_page.py"


def test_every_input_is_counted() -> None:
    names = {make.name for make in (*TARGETS, Sockets)}  # type: ignore[attr-defined]
    assert names == fuzz_page.INPUTS.keys() == json.loads(fuzz_page.DATA.read_text()).keys()


def test_an_input_that_ended_an_agent_is_not_hidden() -> None:
    counts = json.loads(fuzz_page.DATA.read_text())
    counts["http"] |= {"mutations": 1234567, "ended": 2, "date": "2026-01-02", "commit": "abc"}
    wanted = "| `http` | `--metrics-port` | 1,234,567 | 2 | 2026-01-02, abc |"
    assert wanted in fuzz_page.table(counts).splitlines()
