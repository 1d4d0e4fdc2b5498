"""What docs/operate says of fields, metrics and options is what the code has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import typer.main

from pyft.agent.channel import page
from pyft.agent.operators import metrics
from pyft.cli.main import app
from pyft.recovery import inject, redundancy, report
from pyft.recovery.earlier import Earlier

OPERATE = Path(__file__).resolve().parents[2] / "docs" / "operate"


def section(page: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of its level."""
    text = (OPERATE / page).read_text()
    level = heading.split(" ")[0]
    begin = text.index(f"\n{heading}\n") + len(heading) + 2
    return re.split(rf"\n{level} ", text[begin:])[0]


def first_cells(text: str) -> set[str]:
    """Return the names in backquotes of the first column of all tables."""
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}


def test_all_fields_of_a_fault() -> None:
    assert {field.name for field in fields(report.Incident)} <= first_cells(
        section("report.md", "## A fault")
    )


def test_all_phases() -> None:
    text = section("report.md", "## A fault")
    assert all(f"`{phase}`" in text for phase in report.PHASES)


def test_all_fields_of_recovery() -> None:
    more = {"corruptions", "corruptions_earlier", "not_injected", "protected_share", "strikes"}
    found = set(Earlier().summary([], 1.0)) | more
    assert first_cells(section("report.md", "## `recovery`")) == found


def test_all_figures_of_a_store() -> None:
    assert first_cells(section("report.md", "## `store`")) == set(page.FIGURES)


def test_figures_of_redundancy() -> None:
    assert first_cells(section("report.md", "## `dmr`")) == {*redundancy.COUNTERS, "single"}
    audited = first_cells(section("report.md", "## `audit`"))
    assert audited == {*redundancy.AUDIT_COUNTERS, "unaudited_end"}


def test_all_metrics_of_a_rank() -> None:
    names = first_cells(section("metrics.md", "## Of a rank"))
    assert names == {*metrics._MEANINGS, "pyft_store_*"}


def test_all_options_of_run() -> None:
    command = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    options = {option for one in command.params for option in one.opts if option[:2] == "--"}
    named = {
        name.split(" ")[0] for name in first_cells(section("run.md", "## Options of `pyft run`"))
    }
    assert named == options - {"--help"}


def test_all_kinds_of_faults_on_request() -> None:
    kinds = first_cells(section("faults.md", "## Faults on request"))
    assert kinds == set(inject.KINDS)
