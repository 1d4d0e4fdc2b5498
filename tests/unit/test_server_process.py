"""pyft-server as a process, with the soft GPU behind it and a client written in Python."""

from __future__ import annotations

import array
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from pyft import _native
from pyft.agent.channel import protocol, untrusted
from pyft.wire.layout import (
    ATTACH_EXIT,
    COMPLETION_WORD,
    COMPLETION_WORDS_OFFSET,
    CONTROL_PAGE,
    ENTRY_HEADER,
    FENCE_MARK,
    LOG_HEADER,
    NO_SLOT,
    PROTOCOL_EXIT,
    ChannelStatus,
    Mark,
)

DEADLINE_S = 20.0

SERVER = _native.native_dir() / "pyft-server"
LIBRARY = _native.native_dir() / "libsoftgpu.so"
if not (SERVER.is_file() and LIBRARY.is_file()):
    pytest.skip("[build]: pyft-server or libsoftgpu.so is missing", allow_module_level=True)


class Client:
    """Agent and client in one: makes a channel, starts a server, appends entries."""

    def __init__(self, backend: str = str(LIBRARY), **settings: str) -> None:
        self.fds = [os.memfd_create(name) for name in ("log", "control", "bounce", "pinned")]
        sizes = (1 << 16,) * 4
        assert _native.channel_format(*self.fds[:3], *sizes, os.getpid(), 0, 1) == 0
        os.ftruncate(self.fds[3], 1 << 20)
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lengths = protocol.Sizes(*(os.fstat(fd).st_size for fd in self.fds))
        reply = protocol.pack_reply(0, os.getpid(), 0, 1, lengths)
        descriptors = array.array("i", self.fds)
        self.agent.sendmsg([reply], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        environment = os.environ | {
            "PYFT_SERVER_FD": str(theirs.fileno()),
            "PYFT_BACKEND_LIBRARY": backend,
            "SOFTGPU_DEVICES": "1",
            **settings,
        }
        self.process = subprocess.Popen(
            [str(SERVER)],
            env=environment,
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        self.position = self.seq = 0

    def append(self, call: int, body: bytes = b"") -> None:
        self.seq += 1
        body += bytes(-len(body) % 16)
        size = ENTRY_HEADER.size + len(body)
        head = ENTRY_HEADER.pack(size=size, call=call, seq=self.seq, reply_slot=NO_SLOT)
        ring = untrusted.log_header(self.fds[0])["ring_offset"]
        os.pwrite(self.fds[0], head + body, ring + self.position)
        self.position += size
        LOG_HEADER["appended"].put(self.fds[0], self.position)

    def fence(self, word: int, value: int) -> None:
        self.append(Mark.FENCE, FENCE_MARK.pack(word=word, value=value))

    def word(self, index: int) -> int:
        at = COMPLETION_WORDS_OFFSET + index * COMPLETION_WORD.size
        return COMPLETION_WORD["value"].get(self.fds[1], at)

    def status(self) -> int:
        return CONTROL_PAGE["status"].read(untrusted.first_page(self.fds[1]))

    def wait_for(self, condition: object) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.01)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.agent.close()
        for fd in self.fds:
            os.close(fd)


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.close()


def test_fence_and_goodbye(client: Client) -> None:
    client.wait_for(lambda: client.status() == ChannelStatus.SERVING)
    client.fence(30, 5)
    client.wait_for(lambda: client.word(30) == 5)
    client.append(Mark.GOODBYE)
    assert client.process.wait(DEADLINE_S) == 0
    assert client.process.stderr is not None
    assert client.process.stderr.read() == ""


def test_server_ends_with_the_agent(client: Client) -> None:
    client.wait_for(lambda: client.status() == ChannelStatus.SERVING)
    client.agent.close()
    assert client.process.wait(DEADLINE_S) == 0


def test_interrupt_is_for_the_program(client: Client) -> None:
    client.wait_for(lambda: client.status() == ChannelStatus.SERVING)
    client.process.send_signal(signal.SIGINT)
    client.fence(31, 1)
    client.wait_for(lambda: client.word(31) == 1)


def test_damaged_entry_names_itself(client: Client) -> None:
    client.append(63)
    _, text = client.process.communicate(timeout=DEADLINE_S)
    assert client.process.returncode == PROTOCOL_EXIT
    assert "the entry at ring position [0] is damaged: call [63]" in text


def test_unknown_call_shows_the_last_entries(client: Client) -> None:
    client.fence(30, 5)
    client.append(65000)
    _, text = client.process.communicate(timeout=DEADLINE_S)
    assert client.process.returncode == PROTOCOL_EXIT
    assert "entry [2]" in text
    assert "entry [1] call [6] mark" in text


def test_missing_backend_is_named() -> None:
    client = Client("/nonexistent/libsoftgpu.so")
    _, text = client.process.communicate(timeout=DEADLINE_S)
    client.close()
    assert client.process.returncode == 71
    assert "/nonexistent/libsoftgpu.so" in text


def test_started_by_hand() -> None:
    environment = {"PYFT_BACKEND_LIBRARY": str(LIBRARY)}
    result = subprocess.run(
        [str(SERVER)], env=environment, capture_output=True, text=True, timeout=20
    )
    assert result.returncode == 70
    assert "started by the pyft agent" in result.stderr


def test_a_server_whose_supervisor_is_dead_ends_at_once() -> None:
    environment = {"PYFT_BACKEND_LIBRARY": str(LIBRARY), "PYFT_SUPERVISOR_PID": str(os.getppid())}
    result = subprocess.run(
        [str(SERVER)], env=environment, capture_output=True, text=True, timeout=20
    )
    assert (result.returncode, result.stderr) == (70, "")


@pytest.mark.parametrize("rank", [0, 7])
def test_a_place_is_that_of_its_rank_whatever_the_order_of_its_keys(rank: int) -> None:
    client = Client(PYFT_KILL_AT=f"kill:9,cut=0;kill:2,note=1,rank={rank},cut=0")
    client.wait_for(lambda: client.status() == ChannelStatus.SERVING)
    client.fence(30, 1)
    client.fence(30, 2)
    client.append(Mark.GOODBYE)
    ended = client.process.wait(DEADLINE_S)
    notes = CONTROL_PAGE["fault_notes"].read(untrusted.first_page(client.fds[1]))
    value = client.word(30)
    client.close()
    mine = rank == 0
    assert (ended, value, bytes(notes[:3])) == (
        (-signal.SIGKILL, 1, b"\0\1\0") if mine else (0, 2, bytes(3))
    )


@pytest.mark.parametrize("note", ["", ",note=1"])
def test_of_a_place_with_a_note_the_agent_tells(note: str) -> None:
    client = Client(PYFT_KILL_AT=f"kill:9,cut=0{note}")
    client.wait_for(lambda: client.status() == ChannelStatus.SERVING)
    client.append(Mark.GOODBYE)
    _, said = client.process.communicate(timeout=DEADLINE_S)
    client.close()
    assert ("did not happen" in said) == (not note), said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kill:3,cut=2,when=1", "[when=1] is not kill:C, cut=S, rank=R or note=N"),
        ("kill:3,cut=2;kill:x,cut=2", "[kill:x] has no number that can be used"),
        ("kill:3", "[kill:3] does not say after which cut: add cut=S"),
    ],
)
def test_a_place_that_cannot_be_read_ends_the_server_at_its_start(text: str, why: str) -> None:
    client = Client(PYFT_KILL_AT=text)
    _, said = client.process.communicate(timeout=DEADLINE_S)
    client.close()
    assert client.process.returncode == ATTACH_EXIT
    assert f"PYFT_KILL_AT is [{text}]: {why}\n" in said


@pytest.mark.parametrize("number", ["x", "", "0", "1x"])
def test_a_fault_point_without_a_number_is_said_to_be_of_no_use(number: str) -> None:
    client = Client(PYFT_FAULT=f"server.before_dispatch:{number}")
    client.append(Mark.GOODBYE)
    _, said = client.process.communicate(timeout=DEADLINE_S)
    client.close()
    assert client.process.returncode == 0
    text = f"[server.before_dispatch:{number}], not a point, or POINT:N from 1: it is not used"
    assert said == f"pyft: PYFT_FAULT is {text}\n"
