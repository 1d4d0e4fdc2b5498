"""pyft.flexccl: every operation from Python, buffers of every kind, errors as sentences."""

from __future__ import annotations

import array
import mmap
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyft import flexccl
from pyft.flexccl import Communicator, DataType, FlexcclError, ReduceOp, Result, Transport

np = pytest.importorskip("numpy")

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    flexccl.set_timeout_ms(20_000)
    yield
    flexccl.set_transport(Transport.AUTO)
    flexccl.set_timeout_ms(600_000)


@pytest.fixture
def comms() -> Iterator[list[Communicator]]:
    made = flexccl.init_all(3)
    yield made
    for comm in made:
        comm.abort()


Body = Callable[[Communicator], object]


def of_rank(comm: Communicator, count: int = 6) -> np.ndarray:
    return np.arange(count, dtype=np.int64) + 10 * comm.rank


def all_reduce(c: Communicator) -> list[int]:
    data = of_rank(c)
    c.all_reduce(data)
    return data.tolist()


def all_reduce_apart(c: Communicator) -> list[int]:
    out = np.zeros(6, np.int64)
    c.all_reduce(out, of_rank(c), ReduceOp.MAX)
    return out.tolist()


def reduce(c: Communicator) -> list[int] | None:
    out = np.zeros(6, np.int64) if c.rank == 1 else None
    c.reduce(of_rank(c), out, root=1)
    return None if out is None else out.tolist()


def reduce_scatter(c: Communicator) -> list[int]:
    out = np.zeros(2, np.int64)
    c.reduce_scatter(out, of_rank(c))
    return out.tolist()


def all_gather(c: Communicator) -> list[int]:
    out = np.zeros(6, np.int64)
    c.all_gather(out, of_rank(c, 2))
    return out.tolist()


def all_to_all(c: Communicator) -> list[int]:
    out = np.zeros(6, np.int64)
    c.all_to_all(out, of_rank(c))
    return out.tolist()


def broadcast(c: Communicator) -> list[int]:
    data = of_rank(c)
    c.broadcast(data, root=2)
    return data.tolist()


def gather(c: Communicator) -> list[int] | None:
    out = np.zeros(6, np.int64) if c.rank == 0 else None
    c.gather(of_rank(c, 2), out)
    return None if out is None else out.tolist()


def scatter(c: Communicator) -> list[int]:
    out = np.zeros(2, np.int64)
    c.scatter(out, of_rank(c) if c.rank == 0 else None)
    return out.tolist()


def around(c: Communicator) -> list[int]:
    """Everybody sends to the next rank, in a group."""
    out = np.zeros(6, np.int64)
    with flexccl.group():
        c.send(of_rank(c), (c.rank + 1) % 3)
        c.recv(out, (c.rank + 2) % 3)
    return out.tolist()


SUMS = [30, 33, 36, 39, 42, 45]
RESULTS: list[tuple[Body, list[object]]] = [
    (all_reduce, [SUMS] * 3),
    (all_reduce_apart, [[20, 21, 22, 23, 24, 25]] * 3),
    (reduce, [None, SUMS, None]),
    (reduce_scatter, [SUMS[0:2], SUMS[2:4], SUMS[4:6]]),
    (all_gather, [[0, 1, 10, 11, 20, 21]] * 3),
    (all_to_all, [[0, 1, 10, 11, 20, 21], [2, 3, 12, 13, 22, 23], [4, 5, 14, 15, 24, 25]]),
    (broadcast, [[20, 21, 22, 23, 24, 25]] * 3),
    (gather, [[0, 1, 10, 11, 20, 21], None, None]),
    (scatter, [[0, 1], [2, 3], [4, 5]]),
    (around, [[20 + i for i in range(6)], list(range(6)), [10 + i for i in range(6)]]),
]


@pytest.mark.parametrize(("body", "expected"), RESULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_operations(comms: list[Communicator], body: Body, expected: list[object]) -> None:
    assert flexccl.run_ranks(comms, body) == expected


@pytest.mark.parametrize("transport", [Transport.LOOPBACK, Transport.SHM, Transport.TCP])
def test_transports_give_the_same_bits(transport: Transport) -> None:
    flexccl.set_transport(transport)
    comms = flexccl.init_all(3)

    def body(comm: Communicator) -> bytes:
        data = np.random.default_rng(comm.rank).standard_normal(40_001).astype(np.float32)
        comm.all_reduce(data, op=ReduceOp.AVG)
        comm.destroy()
        return data.tobytes()

    results = flexccl.run_ranks(comms, body)
    terms = [np.random.default_rng(r).standard_normal(40_001).astype(np.float32) for r in range(3)]
    assert len(set(results)) == 1
    near = np.frombuffer(results[0], np.float32)
    np.testing.assert_allclose(near, np.mean(terms, axis=0), rtol=1e-5, atol=1e-6)


def test_buffers_of_the_standard_library(comms: list[Communicator]) -> None:
    def body(comm: Communicator) -> tuple[object, bytes, bytes]:
        doubles = array.array("d", [1.5, comm.rank])
        comm.all_reduce(doubles)
        raw = bytearray(b"abc" if comm.rank == 1 else b"...")
        comm.broadcast(raw, root=1)
        gathered = bytearray(6)
        comm.all_gather(gathered, bytes([65 + comm.rank]) * 2)
        return doubles.tolist(), bytes(raw), bytes(gathered)

    assert flexccl.run_ranks(comms, body) == [([4.5, 3.0], b"abc", b"AABBCC")] * 3


def test_types_that_python_lacks_travel_as_raw_memory(comms: list[Communicator]) -> None:
    """bfloat16 1.0 is 0x3f80, 3.0 is 0x4040; fp8 e4m3 1.0 is 0x38, 3.0 is 0x44."""

    def body(comm: Communicator) -> tuple[bytes, bytes]:
        wide = bytearray(b"\x80\x3f" * 3)
        comm.all_reduce(wide, dtype=DataType.BFLOAT16)
        narrow = bytearray(b"\x38" * 5)
        comm.all_reduce(narrow, dtype=DataType.FLOAT8_E4M3)
        return bytes(wide), bytes(narrow)

    assert flexccl.run_ranks(comms, body) == [(b"\x40\x40" * 3, b"\x44" * 5)] * 3


def test_tensors(comms: list[Communicator]) -> None:
    torch = pytest.importorskip("torch")
    kinds = (torch.bfloat16, torch.float16, torch.float8_e5m2, torch.int32, torch.float64)
    for kind in kinds:
        tensors = [torch.full((4, 2), r + 1.0).to(kind) for r in range(3)]
        with flexccl.group():
            for comm, tensor in zip(comms, tensors, strict=True):
                comm.all_reduce(tensor)
        assert [t.float().flatten()[-1].item() for t in tensors] == [6.0] * 3, kind
    with pytest.raises(FlexcclError, match=r"strides \[1, 2\] is not contiguous"):
        comms[0].all_reduce(torch.zeros(4, 2).t())


def test_pre_mul_sum(comms: list[Communicator]) -> None:
    def body(comm: Communicator) -> list[float]:
        op = comm.pre_mul_sum(0.5, DataType.FLOAT32)
        data = np.full(3, 4.0, np.float32)
        comm.all_reduce(data, op=op)
        op.destroy()
        return data.tolist()

    assert flexccl.run_ranks(comms, body) == [[6.0] * 3] * 3


def test_scalars_are_written_as_elements(comms: list[Communicator]) -> None:
    with pytest.raises(FlexcclError, match=r"a scalar of \[FLOAT8_E5M2\] as its bytes, not as"):
        comms[0].pre_mul_sum(0.5, DataType.FLOAT8_E5M2)
    with pytest.raises(FlexcclError, match=r"\[-1\] is no value of type \[UINT8\]"):
        comms[0].pre_mul_sum(-1, DataType.UINT8)
    data = [bytearray(b"\x80\x3f") for _ in comms]
    ops = [comm.pre_mul_sum(2.0, DataType.BFLOAT16) for comm in comms]
    with flexccl.group():
        for comm, op, memory in zip(comms, ops, data, strict=True):
            comm.all_reduce(memory, op=op, dtype=DataType.BFLOAT16)
    assert data == [bytearray(b"\xc0\x40")] * 3  # 6.0


def test_queued_operations_keep_their_buffers(comms: list[Communicator]) -> None:
    def body(comm: Communicator) -> list[int]:
        last = np.zeros(1, np.int64)
        for _ in range(20):
            comm.all_reduce(np.ones(1000, np.int64), wait=False)  # nobody else holds this array
        comm.all_reduce(last, np.array([comm.rank]), wait=False)
        comm.synchronize()
        return last.tolist()

    assert flexccl.run_ranks(comms, body) == [[3]] * 3


def test_split_and_shrink(comms: list[Communicator]) -> None:
    def body(comm: Communicator) -> tuple[object, object]:
        part = comm.split(None if comm.rank == 1 else 7, key=-comm.rank)
        part_place = part and (part.rank, part.size)
        rest_place = None
        if comm.rank != 0:
            with comm.shrink([0]) as rest:
                total = np.array([rest.rank + 1])
                rest.all_reduce(total)
                rest_place = (rest.rank, rest.size, total.item())
        if part:
            part.destroy()
        return part_place, rest_place

    expected = [((1, 2), None), (None, (0, 2, 3)), ((0, 2), (1, 2, 3))]
    assert flexccl.run_ranks(comms, body) == expected


def test_a_group_that_raises_begins_nothing(comms: list[Communicator]) -> None:
    data = [np.ones(3, np.int32) for _ in comms]

    def half_a_group() -> None:
        with flexccl.group():
            comms[0].all_reduce(data[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half_a_group()
    with flexccl.group(), flexccl.group():
        for comm, memory in zip(comms, data, strict=True):
            comm.all_reduce(memory)
    assert [d.tolist() for d in data] == [[3, 3, 3]] * 3


def refusals(c: Communicator) -> list[tuple[Callable[[], object], str]]:
    floats, ints = np.zeros(4, np.float32), np.zeros(4, np.int32)
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    return [
        (lambda: c.all_reduce(floats, ints), "send has type [INT32], recv [FLOAT32]"),
        (lambda: c.all_reduce(floats, floats[:3]), "send has [3] elements, not [4]"),
        (lambda: c.all_reduce(floats[::2]), "an array with strides [8] is not contiguous"),
        (lambda: c.all_reduce(floats.astype(complex)), "has no element type [complex128]"),
        (lambda: c.all_reduce(floats.astype(">f4")), "has the other byte order"),
        (lambda: c.all_reduce(fixed), "a read-only [ndarray] cannot take a result"),
        (lambda: c.all_reduce(b"abcd"), "a read-only [bytes] cannot take a result"),
        (lambda: c.all_reduce(4), "a [int] is neither array nor tensor nor buffer"),
        (lambda: c.all_gather(floats, floats), "recv has [4] elements, not [12]"),
        (lambda: c.all_to_all(floats, floats), "not one part for each of [3] ranks"),
        (lambda: c.gather(floats), "rank [0] gathers and has no recv"),
        (lambda: c.broadcast(floats, root=3), "rank [3] is not one of [3] ranks"),
        (lambda: c.all_reduce(bytearray(3), dtype=DataType.FLOAT16), "no whole number of elements"),
        (lambda: Communicator(b"x", 0, 1), "a unique id has [128] bytes, not [1]"),
        (lambda: Communicator(bytes(128), 0, 1), "was not made by ncclGetUniqueId"),
        (lambda: c.replace_node(1, b"x"), "an info has [4096] bytes, not [1]"),
        (lambda: flexccl.init_all(0), "a communicator of [0] ranks cannot be"),
    ]


def test_refused_arguments(comms: list[Communicator]) -> None:
    for call, sentence in refusals(comms[0]):
        with pytest.raises(FlexcclError) as caught:
            call()
        assert sentence in str(caught.value)
        assert caught.value.code is Result.INVALID_ARGUMENT


def test_ranks_that_disagree_are_named(comms: list[Communicator]) -> None:
    def body(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(5 if comm.rank == 2 else 4, np.float32))

    with pytest.raises(FlexcclError, match="count") as caught:
        flexccl.run_ranks(comms, body)
    assert "[5]" in str(caught.value) or "[4]" in str(caught.value)


def test_abort_ends_a_wait_from_another_thread() -> None:
    first, second = flexccl.init_all(2)
    caught: list[FlexcclError] = []
    begun = threading.Event()

    def wait_for_nobody() -> None:
        begun.set()
        try:
            first.all_reduce(np.zeros(4, np.float32))
        except FlexcclError as error:
            caught.append(error)

    thread = threading.Thread(target=wait_for_nobody)
    thread.start()
    begun.wait(DEADLINE_S)
    first.abort()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert len(caught) == 1
    with pytest.raises(FlexcclError, match="was destroyed or aborted"):
        first.synchronize()
    second.abort()
    second.abort()
    assert repr(second) == "<Communicator, ended>"


PEER = """
import os, sys, numpy as np
from pyft import flexccl
with flexccl.Communicator(bytes.fromhex(sys.argv[1]), 1, 2) as comm:
    data = np.full(3, 2.0, np.float32)
    comm.all_reduce(data)
    print(data.tolist(), flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_is_an_error_of_its_peer(tmp_path: Path) -> None:
    unique_id = flexccl.get_unique_id()
    command = [sys.executable, "-c", PEER, unique_id.hex()]
    pipe = subprocess.PIPE
    # Elsewhere: `-c` looks for modules in the current folder, and the source tree has no libraries.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as peer:
        try:
            comm = Communicator(unique_id, 0, 2)
            data = np.full(3, 1.0, np.float32)
            comm.all_reduce(data)
            assert data.tolist() == [3.0] * 3
            assert peer.stdout is not None
            assert peer.stdout.readline() == "[3.0, 3.0, 3.0]\n"
            assert comm.async_error() is None
        finally:
            os.kill(peer.pid, signal.SIGKILL)
    with pytest.raises(FlexcclError, match=r"rank \[1\]"):
        comm.all_reduce(data)
    error = comm.async_error()
    assert error is not None
    assert error.code is Result.REMOTE_ERROR
    comm.abort()


def newcomer(comms: dict[int, Communicator], slot: int) -> tuple[Communicator, bytes]:
    exported = min(comms.items())[1].export_info(slot)
    return Communicator.init_new_node(exported, slot)


def sums(comms: dict[int, Communicator]) -> set[int]:
    """Return what an all-reduce of 10 to the power of each slot gives at all ranks."""
    data = {slot: np.array([10**slot]) for slot in comms}
    with flexccl.group():
        for slot, comm in comms.items():
            comm.all_reduce(data[slot])
    return {value.item() for value in data.values()}


def test_ranks_are_replaced_removed_and_added() -> None:
    flexccl.set_reserved_slots(1)
    try:
        comms = dict(enumerate(flexccl.init_all(3)))
    finally:
        flexccl.set_reserved_slots(0)
    assert sums(comms) == {111}
    comms.pop(1).abort()
    fresh, info = newcomer(comms, 1)
    for comm in comms.values():
        comm.replace_node(1, info)
        comm.replace_node(1, info)  # twice is once
    fresh.setup_new_rank()
    comms[1] = fresh
    assert sums(comms) == {111}
    assert (fresh.rank, fresh.size, fresh.state().epoch) == (1, 3, 1)

    comms.pop(0).abort()
    for comm in comms.values():
        comm.remove_node(0)
    assert sums(comms) == {110}
    assert [(c.rank, c.size, c.state().position) for _, c in sorted(comms.items())] == [
        (1, 2, 0),
        (2, 2, 1),
    ]

    fresh, info = newcomer(comms, 3)
    for comm in comms.values():
        comm.add_node(info)
    fresh.setup_new_rank()
    comms[3] = fresh
    assert sums(comms) == {1110}
    with pytest.raises(FlexcclError, match=r"rank \[0\]"):
        fresh.broadcast(np.zeros(1), root=0)
    state = fresh.state()
    assert (state.epoch, state.slot, state.slots, state.nranks) == (3, 3, 4, 3)
    for comm in comms.values():
        comm.abort()


def test_a_paused_operation_goes_on_with_the_new_rank() -> None:
    flexccl.set_repair_ms(20_000)
    try:
        comms = dict(enumerate(flexccl.init_all(3)))
    finally:
        flexccl.set_repair_ms(0)
    assert sums(comms) == {111}
    data = {slot: np.array([10**slot]) for slot in range(3)}
    comms[0].all_reduce(data[0], wait=False)
    comms[2].all_reduce(data[2], wait=False)
    comms.pop(1).abort()
    fresh, info = newcomer(comms, 1)
    for comm in comms.values():
        comm.replace_node(1, info)
    fresh.setup_new_rank()
    fresh.all_reduce(data[1])
    for comm in comms.values():
        comm.synchronize()
    assert [value.item() for value in data.values()] == [111] * 3
    for comm in (*comms.values(), fresh):
        comm.destroy()


def test_records_answer_a_replay() -> None:
    first, second = flexccl.init_all(2)
    records = mmap.mmap(-1, 1 << 16)
    assert flexccl.read_region(records) is None
    second.set_records(records)
    comms = {0: first, 1: second}
    assert sums(comms) == {11}
    assert second.state().recorded == 1
    second_used = second.state().record_bytes
    assert 0 < second_used <= second.state().record_budget <= len(records)
    second.abort()
    region = flexccl.read_region(records)
    assert region is not None
    assert (region.slot, region.entered, region.done, region.closed) == (1, 1, 1, 1)
    assert region.comm == first.state().comm
    assert region.used_bytes == second_used
    fresh, info = Communicator.init_new_node(first.export_info(1), 1)
    fresh.replay(0, records)
    assert fresh.state().replaying == 1
    first.replace_node(1, info)
    fresh.setup_new_rank()
    repeated = np.array([10])
    fresh.all_reduce(repeated)  # only this rank calls: the result is its predecessor's
    assert repeated.item() == 11
    assert (fresh.state().replaying, fresh.state().diverged) == (0, 0)
    assert sums({0: first, 1: fresh}) == {11}
    for comm in (first, fresh):
        comm.destroy()
