"""A meta.json that has become anything: each reader shows the job, or says what is wrong with it."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample

from pyft.agent.job import job_folder
from pyft.agent.job.meta_shape import damage
from pyft.api import state
from pyft.cli import coverage
from pyft.cli.report import summary
from pyft.errors import PyftError
from pyft.report import history, lanes, page, perfetto
from pyft.trace import targets

MISSING = object()
WRONG = (MISSING, None, True, "x", -1, 2**64 - 1, 10**30, 1e300, 1e17, [], [1], {}, {"x": None})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where there is anything in a JSON value."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner if isinstance(value, (dict, list)) else ():
        yield from places(one, (*path, key)) if isinstance(one, (dict, list)) else [(*path, key)]


def changed(meta: Any, path: tuple[Any, ...], to: Any) -> Any:
    """Return a copy with another value at one place."""
    made = copy.deepcopy(meta)
    at = made
    for key in path[:-1]:
        at = at[key]
    if to is MISSING:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return made


def read_everywhere(folder: Path) -> None:
    """Read a job as all commands do that show one."""
    job = lanes.read(folder)
    assert summary(job)
    assert page.html(job)
    assert perfetto.trace(job)
    state.faults(folder)
    for show in (targets.of_job, lambda job: coverage.counts_of(str(job))):
        try:
            show(folder)
        except PyftError:  # it has none
            continue


def test_any_field_may_be_anything(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", sample.fault(), steps=3)
    path = folder / job_folder.META
    meta = json.loads(path.read_text()) | {"supervisor_pid": 1, "agent_pid": 1}
    meta["channels"][0] |= {"calls": {"cudaFree": 1}, "store": {"snapshots": 1}}
    meta["recovery"]["strikes"] = [{"gpu": 0, "steps": [3], "left": False}]
    meta["recovery"]["not_injected"] = [{"fault": "gpu-lost", "why": "why"}]
    refused = {}
    for place in places(meta):
        for to in WRONG:
            path.write_text(json.dumps(changed(meta, place, to)))
            assert len(history.table([folder])) == 2
            try:
                read_everywhere(folder)
            except PyftError as error:
                refused[place] = str(error)
    assert len(refused) > 50
    unclear = [one for one in refused.values() if f"[{path}] is damaged: " not in one]
    assert not unclear


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\x00", '{"channels": [1]}'])
def test_the_command_says_one_sentence(tmp_path: Path, text: str) -> None:
    folder = sample.write(tmp_path / "job")
    (folder / job_folder.META).write_text(text)
    assert job_folder.read_meta(folder) == {}
    words = [sys.executable, "-m", "pyft", "report", str(folder)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 1
    assert found.stderr.startswith(f"pyft: [{folder / job_folder.META}] is damaged: ")
    assert found.stderr.count("\n") == 1


def test_what_is_wrong_has_its_place() -> None:
    channel = {"name": "a", "rank": "0", "pid": 1, "device": 0}
    assert damage({"channels": [channel]}) == "channels[0].rank cannot be '0'"
    assert damage({"live": [{}]}) == "live[0].name is missing"
    assert damage({"recovery": {"faults": ["x"]}}) == "recovery.faults[0] is no object"
    assert damage({"live": [], "of": "a later version"}) == ""


def test_a_fault_may_be_of_a_version_that_knew_no_own_errors(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", sample.fault(), steps=3)
    meta = json.loads((folder / job_folder.META).read_text())
    (fault,) = meta["recovery"]["faults"]
    fault.pop("own_error", None)
    assert damage(meta) == ""
    fault["own_error"] = "yes"
    assert damage(meta) == "recovery.faults[0].own_error cannot be 'yes'"
