"""Orders that are none: whatever comes to the socket is answered, and ends no agent."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pyft.agent.operators import orders
from pyft.agent.operators.orders import Orders
from pyft.agent.process import messages
from pyft.errors import PyftError, UsageError
from pyft.recovery import events
from pyft.recovery.gpus import Gpus
from pyft.recovery.plan import Plan

NUMBERS = [0, 1, -1, 2, 8, 2**31, -(2**63), 10**300, 1.5, 1e308, None, True, "1", "x", [], {}]
TEXTS = ["sticky", "hang,step=1", "boom", "", "," * 3000, "server-kill,step=-1", "é\0", "a=b=c"]


def member_of(id: int, rank: int, device: int, is_main: bool = True) -> SimpleNamespace:
    where = SimpleNamespace(rank=rank, device=device)
    return SimpleNamespace(id=id, channel=where, client_gone=False, is_main=lambda: is_main)


class Servers:
    """Has a plan, and carries nothing out."""

    def __init__(self) -> None:
        self.plan = Plan(Gpus(2, 1))
        self.members = {}
        self.written = False
        self.injector = SimpleNamespace(inject=lambda _: "")
        for id in range(2):
            self.plan.handle(events.Attached(id, id, id))
            self.members[id] = member_of(id, rank=id, device=id)

    def event(self, event: events.Event) -> list[str]:
        actions = self.plan.handle(event)
        return [action.text for action in actions if isinstance(action, events.Refuse)]

    def changed(self) -> None:
        self.written = True

    def cannot_add(self, gpu: int) -> str:
        return "" if 0 <= gpu < 8 else "no such GPU"


def answer_to(taker: Orders, data: bytes, fds: tuple[int, ...] = ()) -> dict[str, Any]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(theirs, [data], fds)
        taker.answer(ours)
        ours.close()
        got = messages.receive(theirs)
    assert got is not None
    return got[0]


def test_meta_json_is_told_of_another_number_of_spares() -> None:
    servers = Servers()
    taker = Orders(servers)  # type: ignore[arg-type]
    for gpu, written in ((9, False), (2, True)):
        answer_to(taker, json.dumps({"kind": "drain", "gpu": gpu}).encode())
        assert servers.written == written, gpu


def moved(*members: tuple[int, bool], rank: int = 1, gpu: int = 2) -> tuple[str, dict[int, int]]:
    """Return the answer to `pyft replace`, and what is behind the devices then.

    `members`: device of each process of the rank, and whether the rank works on it.
    """
    servers = Servers()
    for id, (device, is_main) in enumerate(members, 2):
        servers.plan.handle(events.Attached(id, rank, device))
        servers.members[id] = member_of(id, rank, device, is_main)
    del servers.members[1]
    servers.plan.handle(events.ClientGone(1))
    order = json.dumps({"kind": "replace", "rank": rank, "gpu": gpu}).encode()
    problem = answer_to(Orders(servers), order)["problem"]  # type: ignore[arg-type]
    return problem, servers.plan.gpus.behind


def test_a_rank_is_moved_by_the_device_that_it_works_on() -> None:
    for members in ([(0, False), (1, True)], [(1, True), (0, False)]):
        assert moved(*members) == ("", {0: 0, 1: 2})
    assert moved((1, False)) == ("", {0: 0, 1: 2}), "it works on none: the only one is meant"


def test_all_processes_of_a_rank_on_a_device_are_moved() -> None:
    assert moved((1, True), (1, True)) == ("", {0: 0, 1: 2})


def test_a_rank_of_several_devices_is_not_moved_to_one_gpu() -> None:
    problem, behind = moved((0, True), (1, True))
    assert problem == "rank [1] works on devices [0, 1]: GPU [2] can be one of them"
    assert behind == {0: 0, 1: 1}


def an_order(dice: random.Random) -> bytes:
    kinds = ["replace", "drain", "spare", "inject", "boom", "", 7, None]
    order: dict[str, Any] = {"kind": dice.choice(kinds)}
    for name in ("rank", "gpu", "fault"):
        if dice.random() < 0.8:
            order[name] = dice.choice([*NUMBERS, *TEXTS])
    if order["kind"] == "inject" and dice.random() < 0.7:
        order |= {"rank": dice.choice([0, 1]), "fault": dice.choice(TEXTS)}
    data = bytearray(json.dumps(order).encode())
    for _ in range(dice.choice([0, 0, 1, 4])):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def test_no_order_ends_an_agent() -> None:
    dice, taker = random.Random(1), Orders(Servers())  # type: ignore[arg-type]
    before, refused = len(os.listdir("/proc/self/fd")), 0
    for _ in range(10_000):
        answer = answer_to(taker, an_order(dice), (0,) * dice.choice([0, 0, 0, 1, 3]))
        assert answer["kind"] == "answer"
        refused += bool(answer["problem"])
    assert 5_000 < refused < 10_000
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("data", [b"not json", b"[]", b'{"rank":1}', b'{"kind":[]}', b"\xff"])
def test_a_damaged_order_is_answered(data: bytes) -> None:
    taker = Orders(Servers())  # type: ignore[arg-type]
    assert "is damaged" in answer_to(taker, data)["problem"]


def test_a_job_without_orders_says_so() -> None:
    with pytest.raises(UsageError, match=r"job \[x\] takes no orders"):
        orders.give({"job": "x", "orders": f"pyft-none-{os.getpid()}"}, "drain", gpu=0)


def test_an_agent_injects_into_no_other_rank_than_it_is_told() -> None:
    taker = Orders(Servers())  # type: ignore[arg-type]
    for fault, said in (("sticky,rank=0", "name different ranks"), ("sticky,server=2", "server=")):
        order = json.dumps({"kind": "inject", "rank": 1, "fault": fault}).encode()
        assert said in answer_to(taker, order)["problem"]
    order = json.dumps({"kind": "inject", "rank": 1, "fault": "sticky,rank=1"}).encode()
    assert answer_to(taker, order)["problem"] == ""


def test_an_order_waits_for_room_in_the_queue() -> None:
    name = f"pyft-full-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + name)
        listener.listen(0)
        before = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        before.connect("\0" + name)

        def serve() -> None:
            time.sleep(0.2)
            listener.accept()[0].close()
            connection, _ = listener.accept()
            with connection:
                Orders(Servers()).answer(connection)  # type: ignore[arg-type]

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(PyftError, match="drain is refused: .*GPU"):
            orders.give({"job": "x", "orders": name}, "drain", gpu=7)
        server.join()
        before.close()
