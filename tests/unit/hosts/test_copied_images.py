"""An image that is told to be whole is one that the next agent finds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.host_images import HostImages
from pyft.agent.images import Images
from pyft.images.appended import MOST_LOGS, Log
from pyft.recovery.images import Copy, Phase


def test_another_agent_finds_what_the_head_was_told_of(tmp_path: Path) -> None:
    done: list[tuple[str, Any]] = []

    def keep(name: str, note: dict[str, Any]) -> None:
        done.append((name, sorted(note["records"][3])))

    def copied(*_: object) -> list[Any]:
        done.append(("told", None))
        return []

    servers: Any = SimpleNamespace(
        options=SimpleNamespace(memory_folder="", log_dir=tmp_path),
        members={},
        supervisor=SimpleNamespace(keep=keep),
        decisions=SimpleNamespace(note=dict),
        comparison=SimpleNamespace(note=dict, sharing=SimpleNamespace(note=dict)),
    )
    plan: Any = SimpleNamespace(copied=copied, note=dict)
    images = Images(servers, plan)
    images._records[3] = {"number": 3}
    images._copy(Copy(3, 9))
    kept = ["clients", "comparison", "number", "servers", "shares"]
    assert done == [("images", kept), ("told", None)]


@pytest.mark.parametrize("number", [1, MOST_LOGS + 1])
def test_the_head_hears_which_files_an_image_cuts_back(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than it takes there is no image, and that is said."""
    (tmp_path / "log").write_text("step 1\n")
    log = Log.of(str(tmp_path / "log"))
    monkeypatch.setattr(Images, "_begun", lambda *_: ({"logs": [log.note()] * number}, ""))
    servers: Any = SimpleNamespace(options=None, plan=SimpleNamespace(rollback=True))
    images = HostImages(servers)
    _, why = images._begun(3, tmp_path)
    assert (why != "") == (number > MOST_LOGS)
    told: list[Any] = []
    plan: Any = images._plan
    plan.link = SimpleNamespace(say=lambda kind, **values: told.append((kind, values)))
    plan.phase, plan.number = Phase.COPY, 3
    plan.copied(0.0)
    assert told == [("copied", {"number": 3, "logs": [log.name] * number})]
