"""What the first agent of a job finds that is resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pyft.agent.image_record import NOTE, left_behind, memory_of
from pyft.agent.job.options import JobOptions
from pyft.agent.process.notes import read_note
from pyft.agent.restoring import NOTE as RESTORING
from pyft.agent.supervisor.link import Handover
from pyft.cli import flushed
from pyft.cli.main import app
from pyft.images.appended import Log
from pyft.images.travelling import LogError
from pyft.recovery.images import AHEAD, ClientState, Dump, Hold, ImagePlan

RECORD: dict[str, Any] = {"number": 3, "step": 30, "clients": {"0": {"channel": {"name": "x"}}}}


def test_numbers_of_lines_are_not_used_twice() -> None:
    """Of a line that is damaged something may still be in one of the folders."""
    left = left_behind(RECORD, {0: [7, 8]}, {"number": 9})
    note, _ = left[NOTE]
    plan = ImagePlan(every=1)
    plan.adopt(0.0, note["plan"])
    assert plan.current == 3
    step = 31 + AHEAD
    assert plan.look(5.0, [ClientState(0, 31, 0, 0, 5, True)]) == [Hold(step)]
    assert plan.look(5.1, [ClientState(0, step, step, 5, 5, True)]) == [Dump(10, step)]


def test_the_next_agent_finds_a_restore_that_was_begun() -> None:
    left = left_behind(RECORD, {0: [7, 8]}, {})
    handover = Handover(notes={name: note for name, (note, _) in left.items()})
    handover.fds = {name: fds for name, (_, fds) in left.items()}
    assert handover.notes[RESTORING] == RECORD
    assert memory_of(RECORD, handover) == {0: [7, 8]}
    assert handover.notes["job"]["meta"]["state"] == "running"


@pytest.mark.parametrize("has_come", [True, False])
def test_files_that_this_host_has_not_are_made(
    has_come: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    path, folder = tmp_path / "log.txt", tmp_path / "line"
    folder.mkdir()
    path.write_text("step 1\n")
    record = RECORD | {"logs": [Log.of(str(path)).note()]}
    path.rename(folder / "appended-0")
    if not has_come:
        (folder / "appended-0").unlink()
    about = {"image": {"record": record, "clients_name": "pyft-x"}}
    loaded: Any = SimpleNamespace(
        manifest=SimpleNamespace(about=about), folder=folder, memory={0: []}
    )
    started: list[Any] = []
    monkeypatch.setattr(flushed, "Launcher", lambda *what: started.append(what))
    options: Any = None
    if not has_come:
        with pytest.raises(LogError, match="this host has it not"):
            flushed._launcher(loaded, options, 9)
        assert not started
        return
    flushed._launcher(loaded, options, 9)
    assert path.read_text() == "step 1\n"
    ((_, _, kept),) = started
    note = read_note(kept[RESTORING][0])
    assert [log["inode"] for log in note["logs"]] == [path.stat().st_ino]


def test_options_of_flushes_come_to_the_agent() -> None:
    options = JobOptions(
        *("job", Path("/log"), Path("/native"), 1, False, ("true",)),
        flush=("/a", "/b c"),
        parity=1,
        flush_every=2.5,
    )
    assert (
        JobOptions.from_arguments(["--supervisor-fd", "5", *options.to_arguments()])[0] == options
    )


def refused(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["run", *arguments])
    assert found.exit_code != 0
    return str(found.exception)


@pytest.fixture
def _criu_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed.criu, "lacks", lambda _: "")


@pytest.mark.usefixtures("_criu_is_there")
def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    command = ("--", sys.executable, "-c", "0")
    soft = ("--gpus", "soft:1")
    folder = str(tmp_path / "flush")
    assert "need --flush" in refused(*soft, "--flush-every", "5", *command)
    assert "leave [a command] away" in refused("--resume", folder, *command)
    assert "leave [--spares] away" in refused("--resume", folder, "--spares", "1")
    assert "has no line of a job" in refused("--resume", folder)
    assert not (tmp_path / "flush").exists()
    twice = ("--flush", folder, "--flush", folder)
    assert "a folder is named twice" in refused(*soft, *twice, *command)
    assert "[1] folders of which [1] may be lost" in refused(
        *soft, "--flush", folder, "--parity", "1", *command
    )
    (tmp_path / "flush" / "line-4").mkdir(parents=True)
    assert f"`pyft run --resume {folder}`" in refused(*soft, "--flush", folder, *command)
    assert "its manifest cannot be read" in refused("--resume", folder)
    assert "there is no command" in refused(*soft)
