"""Three ranks train twice alike; the second time rank 2 attacks the others in each of its steps.

The others stand in a collective meanwhile, or go on. Each rank prints whether both trainings had
equal bits, rank 2 also what it has done. META: the job's meta.json,
METRICS: its port.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import unix_names
from torch import nn

from pyft.wire import layout
from pyft.wire.layout import ATTACH_REQUEST

HOSTILE = 2
MANY = 300
STANDS_S = 1.0
NOBODY = 65534
Dice = random.Random(7)


def live() -> list[dict]:
    """Return what the job's file says of its ranks."""
    for _ in range(100):
        with contextlib.suppress(OSError, ValueError):  # it is being written
            if found := json.loads(Path(os.environ["META"]).read_text()).get("live"):
                return found
        time.sleep(0.05)
    raise SystemExit("no rank is known")


def servers_of_others() -> list[int]:
    """Return the processes that serve the other ranks."""
    return [one["server_pid"] for one in live() if one["rank"] != HOSTILE]


def inodes(pid: int) -> set[str]:
    """Return the sockets of a process."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    return found


def ports() -> list[int]:
    """Return where the others' servers listen for links and at a rendezvous."""
    theirs = set().union(*map(inodes, servers_of_others()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [
        int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in theirs
    ]
    assert found, "nobody listens"
    return found


def names() -> list[bytes]:
    """Return the others' abstract sockets, for links in shared memory."""
    theirs = set().union(*map(inodes, servers_of_others()))
    found = unix_names.names(theirs)
    assert found, "nobody listens at a name"
    return found


def call(port: int, act: Callable[[socket.socket], bool], seconds: float = 5) -> bool:
    """Connect and act; False if the other side does not take it, or hangs up first, as it may.

    On a busy machine it does so often: to make room it drops what has been silent for a moment.
    """
    with socket.socket() as one:
        one.settimeout(seconds)
        try:
            one.connect(("127.0.0.1", port))
            return act(one)
        except OSError:
            return False


def say(data: bytes) -> Callable[[socket.socket], bool]:
    """Return an act that sends something."""

    def act(one: socket.socket) -> bool:
        one.sendall(data)
        return True

    return act


def noise() -> int:
    """Send random bytes to wherever the others listen."""
    data = [Dice.randbytes(Dice.choice((1, 64, 4096))) for _ in range(20)]
    return sum(call(port, say(one)) for port in ports() for one in data)


def reflection() -> int:
    """Give each challenge back as if it were the answer."""

    def act(one: socket.socket) -> bool:
        challenge = one.recv(4096)
        one.sendall(challenge * 8)
        return len(challenge) > 0

    return sum(call(port, act, seconds=60) for port in ports())


def silence() -> int:
    """Hold many connections and say half of something."""
    held = []
    for port in ports():
        for _ in range(MANY):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                one.send(b"half")
            held.append(one)
    time.sleep(0.5)
    for one in held:
        one.close()
    return len(held)


def resets() -> int:
    """Connect, and go by a reset."""

    def act(one: socket.socket) -> bool:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return True

    return sum(call(port, act) for port in ports() for _ in range(MANY))


def descriptors() -> int:
    """Send descriptors to where links in shared memory are made: open memory, and not what it says."""
    memory = [os.memfd_create("peer") for _ in range(8)]
    done, until, why = 0, time.monotonic() + 20, set[str]()
    while not done and time.monotonic() < until:  # one that was flooded hangs up
        for name, kind in itertools.product(names(), (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)):
            try:
                with socket.socket(socket.AF_UNIX, kind) as one:
                    one.settimeout(5)
                    one.connect(name)
                    socket.send_fds(one, [Dice.randbytes(128)], memory)
                    done += 1
            except OSError as error:
                why.add(f"{name!r} {kind} {error}")
    if not done:
        print(f"no descriptor was taken: {sorted(why)}", flush=True)
    for fd in memory:
        os.close(fd)
    return done


def impostor() -> int:
    """Attach as if this were rank 0, and go without a word."""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "PYFT_RING_MB": "1"}
    text = b"".join(f"{name}={value}\0".encode() for name, value in variables.items())
    head = ATTACH_REQUEST.pack(
        magic=layout.ATTACH_MAGIC,
        version=layout.ATTACH_VERSION,
        pid=os.getpid(),
        environment_bytes=len(text),
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.settimeout(60)
        agent.connect("\0" + os.environ["PYFT_AGENT"])
        agent.send(head + text)
        _, fds, _, _ = socket.recv_fds(agent, 4096, 8)
        for fd in fds:
            os.close(fd)
    return len(fds)


def orders() -> int:
    """Give orders that are none."""
    name = json.loads(Path(os.environ["META"]).read_text())["orders"]
    done = 0
    for data in (b"{", b"\0" * 100, b'{"kind": "drain", "gpu": []}', b'{"kind": "spare"}') * 10:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.settimeout(60)
            one.connect("\0" + name)
            one.send(data)
            done += len(one.recv(4096)) > 0
    return done


def handles() -> int:
    """Use communicators that are not there, places that are taken, sizes that cannot be."""
    nccl = ctypes.CDLL(None)
    wrong = ctypes.c_void_p(0x1234)
    made, id = ctypes.c_void_p(), (ctypes.c_char * 128)(*Dice.randbytes(128))

    class Id(ctypes.Structure):
        _fields_ = [("internal", ctypes.c_char * 128)]

    codes = [
        nccl.ncclCommDestroy(wrong),
        nccl.ncclAllReduce(None, None, ctypes.c_size_t(1 << 60), 7, 0, wrong, None),
        nccl.ncclCommAbort(wrong),
        nccl.ncclCommInitRank(ctypes.byref(made), 3, Id.from_buffer(id), 3),
        nccl.ncclCommInitRank(ctypes.byref(made), 1 << 30, Id.from_buffer(id), -1),
    ]
    return sum(code != 0 for code in codes)


def standstill() -> int:
    """Stop for a while, in the middle of a step."""
    process = os.getpid()
    child = os.fork()
    if child == 0:
        stat = Path(f"/proc/{process}/stat")
        until = time.monotonic() + 60
        while stat.read_text().rpartition(")")[2].split()[0] != "T" and time.monotonic() < until:
            time.sleep(0.01)  # or it would be told to go on before it stops
        time.sleep(STANDS_S)
        os.kill(process, signal.SIGCONT)
        os._exit(time.monotonic() > until)
    os.kill(process, signal.SIGSTOP)
    return int(os.waitpid(child, 0)[1] == 0)


def metrics() -> int:
    """Hold connections to --metrics-port and ask for half of something."""
    held = []
    for _ in range(MANY):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", int(os.environ["METRICS"])))
        held.append(one)
    time.sleep(0.2)
    for one in held:
        with contextlib.suppress(OSError):
            one.send(b"GET /met")
        one.close()
    return len(held)


def another_user() -> int:
    """Do all that a socket allows as somebody else; 0 where this process cannot become one."""
    if os.geteuid():
        return 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            where, named = ports(), names()
            os.setuid(NOBODY)
            heard = sum(call(port, say(bytes(64))) for port in where for _ in range(MANY))
            for name in [*named, b"\0" + os.environ["PYFT_AGENT"].encode()]:
                for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                    with socket.socket(socket.AF_UNIX, kind) as one:
                        one.settimeout(5)
                        with contextlib.suppress(OSError):
                            one.connect(name)
                            one.send(b"\0" * 64)
            code = 0 if heard else 2
        finally:
            os._exit(code)
    return int(os.waitpid(child, 0)[1] == 0)


ATTACKS: tuple[Callable[[], int], ...] = (
    noise, reflection, silence, resets, descriptors, impostor, orders, handles, standstill,
    metrics, another_user,
)  # fmt: skip


def train(rank: int, attacks: bool) -> list[str]:
    """Return losses and gradients of some steps; the hostile rank keeps the others waiting."""
    torch.manual_seed(3)
    model = nn.Linear(32, 32).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    said = []
    for number, attack in enumerate(ATTACKS):
        torch.manual_seed(100 * number + rank)
        loss = model(torch.randn(16, 32, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if attacks and rank == HOSTILE:
            print(f"{attack.__name__}={attack()}", flush=True)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        said.append(loss.item().hex())
    return [*said, str([p.detach().cpu().numpy().tobytes() for p in model.parameters()])]


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    alone = train(rank, attacks=False)
    attacked = train(rank, attacks=True)
    os.write(1, f"rank={rank} equal={alone == attacked}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
