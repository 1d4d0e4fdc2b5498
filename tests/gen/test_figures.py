"""docs/figures.md is what the results say, and results are what benchmarks write."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))
KEYS = {"name", "column", "unit", "median", "min", "max", "n", "values", "at_most", "at_least"}


def load(path: Path) -> ModuleType:
    """Import a program that is in no package."""
    spec = importlib.util.spec_from_file_location(f"_{path.parent.name}_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_is_made_from_the_results() -> None:
    made = load(ROOT / "tools" / "gen" / "figures.py").page()
    assert made == (ROOT / "docs" / "figures.md").read_text(), "python tools/gen/figures.py"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_program_writes_each_figure(path: Path) -> None:
    programs = load(ROOT / "tools" / "gen" / "figure_programs.py")
    found = json.loads(path.read_text())
    for row in found["figures"]:
        programs.check(row, found["command"])


@pytest.mark.parametrize(
    ("row", "command", "why"),
    [
        ({"name": "launch and synchronize"}, "make soup", "is no program"),
        ({"name": "launch and synchronize"}, "make lint", "no target of make that runs one"),
        ({"name": "launch and synchronize"}, "bench/soup.py", "is no program"),
        ({"name": "launch and synchronize"}, "by hand", "is no program"),
        ({"name": "launch and dine"}, "make bench", r"writes a figure \[launch and dine\]"),
        ({"name": "GPT step: entries"}, "bench/hold.py", "writes a figure"),
        ({"name": "8 ranks as llamas", "column": "eat"}, "make bench-ccl", r"figure \[eat\]"),
        ({"name": "GPT step: entries", "command": "make bench-ccl"}, "make bench", "bench-ccl"),
    ],
)
def test_a_figure_that_no_program_writes_is_refused(row: dict, command: str, why: str) -> None:
    programs = load(ROOT / "tools" / "gen" / "figure_programs.py")
    with pytest.raises(programs.NoProgram, match=why):
        programs.check(row, command)


def test_a_figure_may_be_written_by_what_a_program_starts() -> None:
    programs = load(ROOT / "tools" / "gen" / "figure_programs.py")
    programs.check({"name": "x[0].item()", "column": "direct"}, "A=1 bench/run.py --only micro")
    programs.check({"name": "ffma_loop"}, "make bench")


def test_every_file_of_results_is_shown() -> None:
    words = (ROOT / "tools" / "gen" / "figures.toml").read_text()
    shown = [p.stem for p in RESULTS if f'results = "{p.stem}"' in words]
    assert {p.stem for p in RESULTS} - set(shown) == {"sentences"}


def test_every_figure_of_a_sentence_stands_in_one() -> None:
    page = load(ROOT / "tools" / "gen" / "figures.py")
    rows = json.loads(page.SENTENCES.read_text())["figures"]
    words = (ROOT / "tools" / "gen" / "figures.toml").read_text().split("\n", 2)[2]
    assert sorted(page.KEY.findall(words)) == sorted(row["key"] for row in rows)


def test_a_key_becomes_its_figure(tmp_path: Path) -> None:
    page = load(ROOT / "tools" / "gen" / "figures.py")
    rows = [
        {"key": "a-b", "median": 2.5, "min": 1, "max": 3, "n": 4, "unit": "us"},
        {"key": "c", "min": 1, "max": 3},
    ]
    page.SENTENCES = tmp_path / "x.json"
    page.SENTENCES.write_text(json.dumps({"figures": rows}))
    assert page.filled("{a-b}, {c}") == "2.5 (1 to 3, n=4) us, 1 to 3"
    with pytest.raises(KeyError):
        page.filled("{d}")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_say_what_they_are(path: Path) -> None:
    found = json.loads(path.read_text())
    assert all(found[key] for key in ("command", "machine", "commit", "date"))
    for row in found["figures"]:
        assert set(row) <= KEYS | {"note", "missed_on_purpose", "key", "commit", "command"}
        median = row.get("median", row.get("min"))
        assert row.get("min", median) <= median <= row.get("max", median), row


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_missed_target_has_its_reason(path: Path) -> None:
    missed = load(ROOT / "tools" / "gen" / "figures.py").missed
    rows = [row for row in json.loads(path.read_text())["figures"] if "median" in row]
    assert [row for row in rows if missed(row) and not row.get("missed_on_purpose")] == []
    assert [row for row in rows if not missed(row) and "missed_on_purpose" in row] == []


def test_what_a_benchmark_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    figures, result_file = (load(ROOT / "bench" / f"{n}.py") for n in ("figures", "result_file"))
    path = tmp_path / "x.json"
    result_file.write(path, [figures.Figure("a launch", [3.0, 1.0, 2.0], "us", at_most=1.5)])
    found = json.loads(path.read_text())
    assert all(found[key] for key in ("command", "machine", "commit", "date"))
    (row,) = found["figures"]
    assert set(row) <= KEYS
    assert (row["median"], row["min"], row["max"], row["n"]) == (2.0, 1.0, 3.0, 3)
    page = load(ROOT / "tools" / "gen" / "figures.py")
    assert page.value(row) == "2 (1 to 3, n=3) us"
    assert page.target(row) == "<= 1.5: **missed**"
