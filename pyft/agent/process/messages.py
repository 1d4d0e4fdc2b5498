"""Messages between our own processes: one JSON object per SOCK_SEQPACKET message."""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
LARGEST = 65536
FEW_DESCRIPTORS, MOST_DESCRIPTORS = 16, 253  # the second: SCM_MAX_FD of Linux


def send(channel: socket.socket, kind: str, fds: tuple[int, ...] = (), **values: Any) -> bool:
    """Send one message; say whether the other side still listens."""
    data = json.dumps({"kind": kind, **values}).encode()
    try:
        socket.send_fds(channel, [data], list(fds))
    except OSError:
        return False
    return True


def receive(
    channel: socket.socket, descriptors: int = FEW_DESCRIPTORS
) -> tuple[dict[str, Any], list[int]] | None:
    """Wait for one message; None when the other side has ended, ValueError if it is none of ours.

    With more descriptors it is none of ours.
    """
    try:
        data, fds, whole = behind_reset(lambda: receive_fds(channel, descriptors))
    except ConnectionError:
        return None
    if not data and not fds:
        return None
    try:
        message = json.loads(data)
        if not whole or not isinstance(message, dict) or not isinstance(message["kind"], str):
            raise ValueError("it is cut off, or has no kind")
    except (ValueError, KeyError, RecursionError) as error:
        for fd in fds:
            os.close(fd)
        raise ValueError(f"a message of [{len(data)}] bytes is damaged: {error}") from None
    return message, fds


def behind_reset(receive: Callable[[], T]) -> T:
    """Receive; again if the other side has ended and left something unread.

    The kernel tells that by one ConnectionResetError. What the other side said last lies behind it.
    """
    try:
        return receive()
    except ConnectionResetError:
        return receive()


def receive_fds(
    channel: socket.socket, most: int = FEW_DESCRIPTORS
) -> tuple[bytes, list[int], bool]:
    """Take one message with its descriptors, which no child inherits; say whether it is whole.

    socket.recv_fds does not pass its flags on, so what it returns is inherited.
    """
    fds = array.array("i")
    room = socket.CMSG_SPACE(most * fds.itemsize)
    data, parts, flags, _ = channel.recvmsg(LARGEST, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, rights in parts:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(rights[: len(rights) - len(rights) % fds.itemsize])
    return data, list(fds), not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)


def say(sentence: str) -> None:
    """Tell the user, on stderr, in one write so that lines of processes do not mix."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, f"pyft: {sentence}\n".encode(errors="backslashreplace"))


def signal_text(number: int) -> str:
    """Return "9 SIGKILL"."""
    try:
        return f"{number} {signal.Signals(number).name}"
    except ValueError:
        return str(number)


def status_text(wait_status: int) -> str:
    """Say how a process ended, from the status of wait()."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code < 0:
        return f"was killed by signal [{signal_text(-code)}]"
    return f"exited with [{code}]"


def exit_code(wait_status: int) -> int:
    """Return the exit code a shell would show: 128 + n for a death by signal n."""
    return shown(os.waitstatus_to_exitcode(wait_status))


def shown(code: int) -> int:
    """Return the same for a code that is -n for a death by signal n, as of Popen."""
    return 128 - code if code < 0 else code


def flush_and_exit(code: int) -> NoReturn:
    """End without running the exit handlers of libraries."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
