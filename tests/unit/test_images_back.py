"""What becomes of an image that is being made when a client is killed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyft.agent.images import Images
from pyft.recovery.images import ImagePlan, Phase

DUMPED = 77


def images_of(folder: Path, *, dumps: int) -> Images:
    """Return images of which the second counts, and the third is being dumped."""
    quiet = lambda *_, **__: None  # noqa: E731
    servers: Any = SimpleNamespace(
        options=SimpleNamespace(memory_folder="", log_dir=folder),
        members={},
        ending=False,
        plan=SimpleNamespace(ranks={}, rollback=False),
        supervisor=SimpleNamespace(keep=quiet, drop=quiet, forget=quiet),
        decisions=SimpleNamespace(note=dict),
        comparison=SimpleNamespace(note=dict, sharing=SimpleNamespace(note=dict)),
    )
    plan = ImagePlan()
    images = Images(servers, plan)
    images._program = Path("criu")
    for number in (2, 3):
        images._records[number] = {"number": number, "step": 10 * number, "folder": str(folder)}
    images._memory[2] = {1: []}
    plan.current, plan.number, plan.phase = 2, 3, Phase.DUMP
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
