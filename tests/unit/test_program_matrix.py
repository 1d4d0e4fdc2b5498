"""What `make test-programs` takes for equal, and that its page is that of its results."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "programs"
sys.path.insert(0, str(FOLDER))
import environment  # noqa: E402
import matrix  # noqa: E402
import stopped  # noqa: E402
import table  # noqa: E402
import verdicts  # noqa: E402

LINES = ("rank=0 loss=0x1p+2", "rank=0 sha256=aa", "rank=1 sha256=bb")
FAULT = {"fault": "server-killed", "outcome": "recovered", "rank": 1, "cut": 2}
FAULT |= {"total_ms": 400.0, "replayed_entries": 43}
DIRECT = verdicts.Run(0, LINES)
KILLED = verdicts.Run(0, LINES, (FAULT,), (), "exact")
LOST = replace(KILLED, faults=({**FAULT, "fault": "gpu-lost"},))
RESULTS = json.loads((FOLDER / "results.json").read_text())


def wrong(mode: str, run: verdicts.Run, ranks: int = 2) -> list[str]:
    return verdicts.problems(mode, run, DIRECT, ranks)


@pytest.mark.parametrize(
    ("mode", "run"), [("direct", DIRECT), ("proxied", DIRECT), ("killed", KILLED), ("lost", LOST)]
)
def test_runs_that_are_the_same_have_nothing_wrong(mode: str, run: verdicts.Run) -> None:
    assert wrong(mode, run) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"code": None}, "has not ended"),
        ({"code": 1, "said": "why"}, "exit code [1]: why"),
        ({"lines": ("rank=0 loss=0x1p+3", *LINES[1:])}, "[2] other lines"),
        ({"lines": LINES[:2]}, "too few [sha256=]"),
        ({"lines": LINES[1:]}, "too few [loss=]"),
        ({"faults": ()}, "no fault [server-killed] is reported"),
        ({"faults": ({**FAULT, "fault": "gpu-lost"},)}, "no fault [server-killed] is reported"),
        ({"faults": ({**FAULT, "outcome": "given up: x"},)}, "outcomes ['given up: x']"),
        ({"not_injected": ({"fault": "f", "why": "w"},)}, "the fault did not happen"),
        ({"faults": (FAULT, {**FAULT, "fault": "replica"})}, "nobody asked for: ['replica']"),
        ({"verdict": "equivalent"}, "verdict [equivalent]"),
        ({"left": "a process"}, "left a process"),
    ],
)
def test_each_difference_is_named(change: dict, named: str) -> None:
    found = wrong("killed", replace(KILLED, **change))
    assert any(named in one for one in found), found


def test_a_fault_that_nobody_asked_for_is_wrong() -> None:
    assert wrong("proxied", replace(DIRECT, faults=(FAULT,)))


def test_results_are_what_programs_print_for_it() -> None:
    said = "INFO loss=1\nrank=1 sha256=bb\nstep 3 sha256=1\nrank=0 loss=0x1p+2\n"
    assert verdicts.results(said) == ("rank=0 loss=0x1p+2", "rank=1 sha256=bb")


def test_the_page_is_that_of_the_results() -> None:
    assert table.PAGE.read_text() == table.page(RESULTS)


def test_results_are_of_these_versions() -> None:
    files = {one.name: one.pins for one in matrix.PROGRAMS}
    known = [*files]
    assert list(RESULTS["programs"]) == [name for name in known if name in RESULTS["programs"]]
    for name, row in RESULTS["programs"].items():
        pins = environment.pins((FOLDER / files[name]).read_text())
        for package, version in row["versions"].items():
            pinned = pins.get(package, RESULTS["torch"] if package == "torch" else version)
            assert version == pinned, f"{name} was run with {package} {version}: run it again"


def test_what_was_run_without_faults_or_differs_is_told() -> None:
    for name, row in RESULTS["programs"].items():
        modes = set(row["seconds"])
        assert modes == set(verdicts.MODES) or row["wrong"], name
        for mode in verdicts.CLASSES:
            told = {fault["fault"] for fault in row["faults"].get(mode, [])}
            assert verdicts.CLASSES[mode] in told or row["wrong"], f"{name}, {mode}"


def test_a_program_without_results_is_named() -> None:
    some = dict(list(RESULTS["programs"].items())[:1])
    text = table.page({**RESULTS, "programs": some})
    for one in matrix.PROGRAMS:
        assert (f"* `{one.name}`: {one.text}"[:60] in text) is (one.name not in some)


def test_a_row_that_differs_is_below_the_table() -> None:
    name = next(iter(RESULTS["programs"]))
    wrong = {"wrong": {"killed": ["other lines"]}, "equal": False}
    row = {**RESULTS["programs"][name], **wrong}
    text = table.page({**RESULTS, "programs": {**RESULTS["programs"], name: row}})
    assert f"* `{name}`, killed: other lines" in text
    assert re.search(rf"\| {name} \|.*\*\*no\*\*, see below", text)


def test_a_row_with_equal_bits_says_so() -> None:
    name = next(iter(RESULTS["programs"]))
    again = replace(DIRECT, faults=({**FAULT, "fault": "replica"},))
    row = verdicts.row({"direct": DIRECT, "proxied": again}, {"torch": "2"}, 2)
    text = table.page({**RESULTS, "programs": {**RESULTS["programs"], name: row}})
    assert re.search(rf"\| {name} \|.*\| 1, 2, but see below \|", text)
    assert table.REPLICA in text


def test_a_program_that_fails_without_servers_has_a_row() -> None:
    name = next(iter(RESULTS["programs"]))
    failed = {"direct": verdicts.Run(1, seconds=2.5, said="why")}
    row = verdicts.row(failed, {"torch": "2"}, 1)
    text = table.page({**RESULTS, "programs": {**RESULTS["programs"], name: row}})
    cells = "2.5 s | not run | not run | not run | **no**, see below |"
    assert re.search(rf"\| {name} \|.*{re.escape(cells)}", text)
    assert f"* `{name}`, direct: exit code [1]: why" in text


def test_each_program_has_its_script_and_a_name_of_its_own() -> None:
    programs = [*matrix.PROGRAMS, *stopped.STOPPED]
    assert len({one.name for one in programs}) == len(programs)
    for one in programs:
        assert (FOLDER / "src" / one.words[0]).is_file(), one.name


@pytest.mark.parametrize("file", sorted(FOLDER.glob("requirements*.txt")), ids=lambda f: f.name)
def test_all_packages_are_pinned(file: Path) -> None:
    pins = environment.pins(file.read_text())
    assert pins
    assert [name for name, version in pins.items() if not re.fullmatch(r"[\w.]+", version)] == []
