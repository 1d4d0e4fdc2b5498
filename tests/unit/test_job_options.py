"""Options of a job: what the agent is given is what the user has asked, whatever is added."""

from __future__ import annotations

import enum
import inspect
import re
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pyft.agent.job.environment import server_environment
from pyft.agent.job.options import OF_JOB, JobOptions
from pyft.cli import run_options
from pyft.cli.run import run

ROOT = Path(__file__).resolve().parents[2]
PLAIN = JobOptions("j", Path("/l"), Path("/n"), 1, direct=False, command=("train", "--", "-x"))
OTHER: dict[Any, Any] = {bool: True, int: 7, float: 2.5, str: "a b", Path: Path("/x y")}
NAMES = [field.name for field in fields(JobOptions)]
OF_THE_HOST = {
    *("log_dir", "native_dir", "memory_folder", "metrics_port"),
    *("head", "place", "life", "host", "address"),
    *("flush", "parity", "flush_every"),
}
OF_ALL_THAT_MOVE = {"direct": False, "movable": True}
HAPPENED = {"inject"}  # what is left of it is in the notes of the agents


def through_a_command_line(options: JobOptions) -> JobOptions:
    got, fd = JobOptions.from_arguments(["--supervisor-fd", "5", *options.to_arguments()])
    assert fd == 5
    return got


@pytest.mark.parametrize("name", NAMES)
def test_each_field_comes_to_the_agent(name: str) -> None:
    """Whoever adds one has nothing else to write."""
    kind = get_type_hints(JobOptions)[name]
    value = OTHER.get(kind, ("one", "two words", ""))
    options = replace(PLAIN, **{name: value})
    assert options != PLAIN, "the value is another one"
    assert through_a_command_line(options) == options


def test_what_was_not_asked_is_as_the_fields_say() -> None:
    assert through_a_command_line(PLAIN) == PLAIN


def test_each_field_goes_with_the_job_or_is_of_the_host() -> None:
    """Whoever adds one decides which: a job that moves may not lose what was asked of it."""
    goes = set(PLAIN.of_the_job())
    assert goes == {*OF_JOB, "command", "replay"}
    parts = [goes, OF_THE_HOST, set(OF_ALL_THAT_MOVE), HAPPENED]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)


def test_products_are_compared_on_the_next_host_as_well() -> None:
    asked = replace(PLAIN, dmr="checkpoint", movable=True, head="h:1")
    own = {"log_dir": Path("/other"), "native_dir": Path("/n"), **OF_ALL_THAT_MOVE}
    there = JobOptions(**asked.of_the_job() | own)
    assert server_environment(there, {}, 0, 0, 1)["PYFT_DMR"] == "checkpoint"


def said(default: Any) -> Any:
    """Return a default of the command as a field has it: None and an empty list say nothing."""
    return default.value if isinstance(default, enum.Enum) else default


def test_defaults_of_the_command_are_those_of_the_job() -> None:
    """typer wants them in the signature, where others could stand."""
    given = inspect.signature(run).parameters
    compared = 0
    for field in fields(JobOptions):
        if field.name in given and field.default is not MISSING:
            default = said(given[field.name].default)
            assert (default or type(field.default)()) == field.default, field.name
            compared += 1
    assert compared > 10


def table_of_the_page() -> list[list[str]]:
    """Return the rows of docs/operate/run.md that begin with an option."""
    lines = (ROOT / "docs/operate/run.md").read_text().splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("| `--")]
    return [[cell.strip() for cell in row] for row in cells]


def test_the_page_has_the_options_that_there_are() -> None:
    page = {word for row in table_of_the_page() for word in re.findall(r"--[a-z-]+", row[0])}
    names = set(inspect.signature(run).parameters) - {"context", "command"}
    assert page == {"--" + name.replace("_", "-") for name in names}


@pytest.mark.parametrize(
    "words", [run_options.OnNoSpare, run_options.StandBy, run_options.Dmr, run_options.Unsupported]
)
def test_the_page_has_their_words_and_defaults(words: type[enum.Enum]) -> None:
    given = {
        name: one.default
        for name, one in inspect.signature(run).parameters.items()
        if isinstance(one.default, words)
    }
    ((name, default),) = given.items()
    option = f"--{name.replace('_', '-')} " + r"\|".join(one.value for one in words)
    found = [row for row in table_of_the_page() if row[0] == f"`{option}`"]
    assert [row[-1] for row in found] == [f"`{default.value}`"]
