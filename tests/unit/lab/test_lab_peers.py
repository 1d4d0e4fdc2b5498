"""Copies and parity in peers' memory: any one rank's memory may be lost, two are too many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from pyft_lab.matrix.launch import make_memory  # noqa: E402
from pyft_lab.mechanisms import peers, xor_parity  # noqa: E402
from pyft_lab.mechanisms.memory import Memory  # noqa: E402
from pyft_lab.mechanisms.peers import Peers  # noqa: E402
from pyft_lab.mechanisms.xor_parity import XorParity  # noqa: E402
from pyft_lab.workloads.points import clear_memory  # noqa: E402

WAIT_S = 60.0
INTERVAL = 5


class State:
    """Of a rank: a tensor of its own length, and its step."""

    def __init__(self, rank: int, step: int = 0) -> None:
        self.step, self.device = step, "cpu"
        self.values = torch.arange(100 + 37 * rank) * (step + 1) + rank

    def pack(self) -> dict[str, Any]:
        return {"values": self.values, "step": self.step}

    def unpack(self, packed: dict[str, Any]) -> None:
        self.values, self.step = packed["values"], packed["step"]


class Together:
    """Ranks that are threads of this process, and what they need of torch.distributed."""

    def __init__(self, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.here = world, threading.local()
        self.barrier = threading.Barrier(world, timeout=WAIT_S)
        self.table: list[Any] = [None] * world
        self.ways: dict[tuple[int, int], Queue[Any]] = {}
        for name in ("get_rank", "get_world_size", "new_group", "all_reduce", "all_gather_object",
                     "isend", "recv"):  # fmt: skip
            monkeypatch.setattr(dist, name, getattr(self, name))

    def get_rank(self) -> int:
        return self.here.rank

    def get_world_size(self) -> int:
        return self.world

    def new_group(self, backend: str) -> None:
        assert backend == "gloo"

    def gathered(self, value: Any) -> list[Any]:
        self.barrier.wait()
        self.table[self.here.rank] = value
        self.barrier.wait()
        return list(self.table)

    def all_gather_object(self, into: list[Any], value: Any, group: Any = None) -> None:
        into[:] = self.gathered(value)

    def all_reduce(self, tensor: Any, op: Any, group: Any = None) -> None:
        fold = {dist.ReduceOp.MAX: torch.maximum, dist.ReduceOp.MIN: torch.minimum,
                dist.ReduceOp.BXOR: torch.bitwise_xor}[op]  # fmt: skip
        first, *others = self.gathered(tensor.clone())
        for other in others:
            assert other.shape == first.shape
            first = fold(first, other)
        tensor.copy_(first)

    def way(self, source: int, to: int) -> Queue[Any]:
        return self.ways.setdefault((source, to), Queue())

    def isend(self, tensor: Any, to: int, group: Any = None) -> Any:
        self.way(self.here.rank, to).put(tensor.clone())
        return SimpleNamespace(wait=lambda: None)

    def recv(self, tensor: Any, source: int, group: Any = None) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:  # the other rank may have failed
            try:
                tensor.copy_(self.way(source, self.here.rank).get(timeout=0.05))
                return
            except Empty:
                if self.barrier.broken or time.monotonic() > deadline:
                    raise threading.BrokenBarrierError from None

    def run(self, of: Callable[[int], Any]) -> list[Any]:
        """Let all ranks do something at once; return what each says."""
        said: list[Any] = [None] * self.world

        def one(rank: int) -> None:
            self.here.rank = rank
            try:
                said[rank] = of(rank)
            except BaseException as error:
                self.barrier.abort()
                said[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        errors = [one for one in said if isinstance(one, BaseException)]
        # What has only been left alone by another one comes last.
        for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
            raise error
        return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_memory(tmp_path, 4, Peers.places)
    return tmp_path


def save(of: type[Memory], folder: Path, together: Together, *steps: int) -> None:
    def one(rank: int) -> None:
        mechanism = of(folder / "checkpoints", rank, INTERVAL)
        for step in steps:
            mechanism.save(State(rank, step))

    together.run(one)


def restored(of: type[Memory], folder: Path, together: Together) -> list[int]:
    """Return to which step each rank came back, after it was found to be whole."""

    def one(rank: int) -> int:
        state = State(rank, 0)
        of(folder / "checkpoints", rank, INTERVAL).restore(state)
        assert torch.equal(state.values, State(rank, state.step).values)
        return state.step

    return together.run(one)


@pytest.mark.parametrize("of", [Peers, XorParity])
@pytest.mark.parametrize("world", [2, 4])
def test_any_rank_s_memory_may_be_lost_again_and_again(
    of: type[Memory], world: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together(world, monkeypatch)
    assert restored(of, folder, together) == [0] * world
    save(of, folder, together, 5, 10)
    for lost in range(world):  # each finds whole what the one before has lost
        clear_memory(folder, lost)
        assert restored(of, folder, together) == [10] * world


@pytest.mark.parametrize(("of", "after"), [(Peers, 0), (XorParity, 0), (Memory, 0)])
def test_neighbours_that_are_lost_at_once_are_too_many(
    of: type[Memory], after: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together(4, monkeypatch)
    save(of, folder, together, 5)
    clear_memory(folder, 1)
    clear_memory(folder, 2)
    assert restored(of, folder, together) == [after] * 4


def test_copies_stand_the_loss_of_ranks_that_are_no_neighbours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together(4, monkeypatch)
    save(Peers, folder, together, 5)
    clear_memory(folder, 0)
    clear_memory(folder, 2)
    assert restored(Peers, folder, together) == [5] * 4


@pytest.mark.parametrize("of", [Peers, XorParity])
def test_a_checkpoint_that_not_all_have_come_to_does_not_count(
    of: type[Memory], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together(4, monkeypatch)
    save(of, folder, together, 5)
    for rank in (0, 1):  # they have written step 10 into their own memory, and ended
        mechanism = together.run(lambda r: of(folder / "checkpoints", r, INTERVAL))[rank]
        mechanism.keep(mechanism.own, 10, b"of step 10")
    assert restored(of, folder, together) == [5] * 4


class OwnOnly(Peers):
    """Gives a peer what it has kept for itself: the copy is of another rank."""

    def save(self, state: Any) -> None:
        data = peers.packed_bytes(state)
        self.keep(self.own, state.step, data)
        self.keep(self.others, state.step, data)


class OldParity(XorParity):
    """Writes parity of the first checkpoint only."""

    def save(self, state: Any) -> None:
        super().save(state)
        if state.step > INTERVAL:
            old = self.kept(self.others)[INTERVAL]
            self.keep(self.others, state.step, old)


@pytest.mark.parametrize(("of", "error"), [(OwnOnly, AssertionError), (OldParity, Exception)])
def test_copies_of_something_else_are_noticed(
    of: type[Memory], error: type[Exception], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = Together(4, monkeypatch)
    save(of, folder, together, 5, 10)
    clear_memory(folder, 1)
    with pytest.raises(error):  # parity of another checkpoint gives bytes that are no state
        restored(of, folder, together)


def test_parity_takes_a_share_of_what_copies_take(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, taken = Together(4, monkeypatch), {}
    for of in (Peers, XorParity):
        save(of, folder, together, 5)
        said = together.run(lambda r, of=of: of(folder / "checkpoints", r, INTERVAL))
        taken[of] = sum(len(data) for m in said for data in m.kept(m.others).values())
    assert taken[XorParity] < 0.5 * taken[Peers]  # a third, and what fills it up
    assert xor_parity.SIZE == 8
