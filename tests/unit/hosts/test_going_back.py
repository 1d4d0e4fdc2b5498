"""What a place says of itself while it goes back, whenever the head calls for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyft.hosts.place.actions import GoBack, Leave
from pyft.hosts.place.remote import RemoteImages


def test_a_place_has_come_back_when_its_next_agent_says_so() -> None:
    """The one that puts it back may have to call again meanwhile: the head may have died."""
    said: list[dict[str, Any]] = [{"kind": "back", "round": 1, "number": 3, "why": "h1 is lost"}]
    plan = RemoteImages()
    plan.link = SimpleNamespace(heard=lambda: said.pop() if said else None)  # type: ignore[assignment]
    assert plan.look(0.0, []) == [GoBack(3, "h1 is lost")]
    assert plan.hello(0, 1)["restored"] == 0
    following = RemoteImages()
    following.adopt(0.0, plan.note())
    assert following.hello(0, 1)["restored"] == 1


def test_a_place_that_is_to_leave_is_told_so_again() -> None:
    """Whenever its agent calls, until it has left: the message may be lost, or the agent."""
    order = {"kind": "leave", "round": 1, "number": 3, "why": "host [h1] is drained"}
    said: list[dict[str, Any]] = [order]
    for _ in range(2):
        plan = RemoteImages()
        plan.link = SimpleNamespace(heard=lambda: said.pop() if said else None)  # type: ignore[assignment]
        assert plan.look(0.0, []) == [Leave(3, "host [h1] is drained")]
        assert plan.hello(1, 1)["restored"] == 0
        said.append(order)
