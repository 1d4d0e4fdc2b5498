"""Every order of deaths and messages while two ranks divide a communicator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import model  # noqa: E402
from model_dividing import DividingWorld, Guest  # noqa: E402

from pyft.recovery.communicators import Communicators  # noqa: E402
from pyft.wire import messages as wire  # noqa: E402

KILL = ("kill",)


@pytest.mark.parametrize(("faults", "agents"), [(1, 1), (1, 2)])
def test_all_orders(faults: int, agents: int) -> None:
    """Two deaths take a quarter of a minute, three ranks with one a whole one: both pass."""
    assert model.explore(DividingWorld(2, 0, faults, KILL, agents), limit=100_000) > 1000


def test_the_model_finds_that_making_is_heard_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other message: behind what other servers have said later."""
    late = lambda self, server: self.say(server, wire.Making)  # noqa: E731
    monkeypatch.setattr(DividingWorld, "say_making", late)
    with pytest.raises(AssertionError):
        model.explore(DividingWorld(2, 0, 1, KILL), limit=20_000)


def test_the_model_finds_one_that_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may have it, with the address of the dead server."""

    def work(self: DividingWorld, server: Guest) -> None:
        original(self, server)
        if server.stage == "asking":
            server.stage = "make"

    original = DividingWorld.work
    monkeypatch.setattr(DividingWorld, "work", work)
    with pytest.raises(AssertionError):
        model.explore(DividingWorld(2, 0, 1, KILL), limit=20_000)


def test_the_model_finds_one_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one may be about to make it with that address."""
    monkeypatch.setattr(Communicators, "_on_the_way", lambda *_: [])
    with pytest.raises(AssertionError):
        model.explore(DividingWorld(2, 0, 1, KILL), limit=20_000)
