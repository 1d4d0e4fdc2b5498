"""An image that is told to be whole is one that the next agent finds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyft.agent.images import Images
from pyft.recovery.images import Copy


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
