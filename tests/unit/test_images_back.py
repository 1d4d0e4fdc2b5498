"""What becomes of an image that is being made when a client is killed."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.host_images import HostImages
from pyft.agent.images import Images
from pyft.recovery.images import MOST_TAKE_S, ImagePlan, Phase

DUMPED = 77


def images_of(folder: Path, *, dumps: int) -> Images:
    """Return images of which the second counts, and the third is being dumped."""
    quiet = lambda *_, **__: None  # noqa: E731
    servers: Any = SimpleNamespace(
        options=SimpleNamespace(memory_folder="", log_dir=folder),
        members={},
        ending=False,
        plan=SimpleNamespace(ranks={}, rollback=True),
        supervisor=SimpleNamespace(keep=quiet, drop=quiet, forget=quiet),
        decisions=SimpleNamespace(note=dict),
        comparison=SimpleNamespace(found=[], note=dict, sharing=SimpleNamespace(note=dict)),
    )
    plan = ImagePlan()
    images = Images(servers, plan)
    images._program = Path("criu")
    for number in (2, 3):
        images._records[number] = {"number": number, "step": 10 * number, "folder": str(folder)}
    images._memory[2] = {1: []}
    plan.current, plan.number, plan.phase = 2, 3, Phase.DUMP
    plan._since = time.monotonic()
    plan._missing = lambda clients: ""  # type: ignore[method-assign]
    images._dump = dumps
    return images


def test_an_image_that_is_whole_now_does_not_replace_that_to_which_all_go_back(
    tmp_path: Path,
) -> None:
    """A client is killed while CRIU dumps, and both ends are heard of in one turn of the loop."""
    images = images_of(tmp_path, dumps=DUMPED)
    assert images.client_lost("the client was killed")
    assert images.ended(DUMPED, 0)
    images.look()
    assert images.back == images._records[2]
    assert images._memory[2] == {1: []}
    assert images._plan.current == 2


def test_without_a_death_the_new_image_counts(tmp_path: Path) -> None:
    images = images_of(tmp_path, dumps=DUMPED)
    assert images.ended(DUMPED, 0)
    assert images._plan.current == 3
    assert 2 not in images._records


@pytest.mark.parametrize("at", [MOST_TAKE_S, MOST_TAKE_S + 0.1])
def test_all_go_back_if_criu_hangs(tmp_path: Path, at: float) -> None:
    """It holds all processes, and nothing else can let them go."""
    images, clock = images_of(tmp_path, dumps=0), Clock()
    images._clock = clock  # type: ignore[assignment]
    images._dumps(DUMPED)
    clock.at = at
    images.look()
    assert images.back == (images._records[2] if at > MOST_TAKE_S else None)
    assert not images.failed


def test_the_job_ends_if_criu_hangs_and_there_is_no_image_yet(tmp_path: Path) -> None:
    images, clock = images_of(tmp_path, dumps=0), Clock()
    images._clock, images._plan.current = clock, 0  # type: ignore[assignment]
    images._dumps(DUMPED)
    clock.at = MOST_TAKE_S + 1
    images.look()
    assert images.back is None
    assert images.failed == "CRIU has not ended within [300] s"


def test_the_head_is_told_that_criu_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by an agent that has found it at work."""
    servers, clock, told = images_of(tmp_path, dumps=0)._servers, Clock(), list[str]()
    images = HostImages(servers)
    monkeypatch.setattr(images, "_tell_lacks_gpu", lambda: None)
    images._clock, images._program = clock, Path("criu")  # type: ignore[assignment]
    images._plan.link = SimpleNamespace(  # type: ignore[assignment]
        heard=lambda: None, say=lambda kind, **values: told.append(f"{kind}: {values['why']}")
    )
    images._dumps(DUMPED)
    for clock.at in (1.0, MOST_TAKE_S + 1, MOST_TAKE_S + 1.1):
        images.look()
    assert told == ["lost: CRIU has not ended within [300] s"]


def test_a_dump_that_the_head_gives_up_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRIU fails if its tree is told to go on, and leaves all connections within it cut."""
    images, done = HostImages(images_of(tmp_path, dumps=0)._servers), list[str]()
    monkeypatch.setattr(images, "_tell_lacks_gpu", lambda: None)
    monkeypatch.setattr(images, "_continue", lambda: done.append("goes on"))
    monkeypatch.setattr(images, "_drop", lambda number: done.append(f"drop {number}"))
    plan, said = images._plan, [{"kind": "release", "why": "host [h1] is lost", "number": 3}]
    said.append({"kind": "drop", "number": 2})
    plan.link = SimpleNamespace(  # type: ignore[assignment]
        heard=lambda: said.pop(0) if said else None, say=lambda *_, **__: None
    )
    plan.phase, plan.number, plan.current = Phase.DUMP, 3, 1
    images._dump = DUMPED
    images.look()
    assert done == ["drop 2"]
    assert images.ended(DUMPED, 0)
    assert done[-1] == "drop 3"
    assert set(done[1:-1]) == {"goes on"}


class Clock:
    """One that is put forward."""

    at = 0.0

    def now(self) -> float:
        """Look at it."""
        return self.at
