"""What a place says of itself while it goes back, whenever the head calls for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pyft.hosts.place.actions import GoBack, Leave
from pyft.hosts.place.remote import RemoteImages
from pyft.recovery.images import ClientState, Hold


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


def test_a_step_that_a_client_has_passed_is_passed_over_once() -> None:
    """The head lets all places go on then: they would stand still for the whole time of a hold."""
    said: list[dict[str, Any]] = [{"kind": "hold", "step": 7, "milliseconds": 5000}]
    told: list[dict[str, Any]] = []
    plan = RemoteImages()
    plan.link = SimpleNamespace(  # type: ignore[assignment]
        heard=lambda: said.pop() if said else None,
        say=lambda kind, **values: told.append({"kind": kind, **values}),
    )
    clients = [ClientState(0, 7, 7, 7, 7, True), ClientState(1, 7, 0, 0, 7, True)]
    assert plan.look(0.0, clients) == [Hold(7)]
    plan.look(0.1, clients)
    assert told == []
    for now in (0.2, 0.3):
        plan.look(now, [clients[0], replace(clients[1], steps=8)])
    assert told == [{"kind": "passed", "why": "client [1] is past step [7]"}]
