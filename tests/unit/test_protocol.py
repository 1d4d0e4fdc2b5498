"""The attach protocol, as the agent speaks it (proxy/ring/attach.h)."""

from __future__ import annotations

import pytest

from pyft.agent import clients
from pyft.agent.channel import protocol
from pyft.errors import AttachError
from pyft.wire.layout import ATTACH_MAGIC, ATTACH_REPLY, ATTACH_REQUEST, ATTACH_VERSION


def test_replies() -> None:
    refusal = ATTACH_REPLY.unpack(protocol.pack_refusal(12, "no memory"))
    assert (refusal.magic, refusal.error) == (ATTACH_MAGIC, 12)
    assert refusal.text.rstrip(b"\0") == b"no memory"
    assert ATTACH_REPLY.unpack(protocol.pack_refusal(5, "x" * 999)).text == b"x" * 255 + b"\0"
    reply = ATTACH_REPLY.unpack(protocol.pack_reply(1, 2, 3, 4, protocol.Sizes(5, 6, 7, 8, 9)))
    assert reply[:8] == (ATTACH_MAGIC, ATTACH_VERSION, 0, 1, 2, 3, 4, 0)
    assert reply[8:13] == (5, 6, 7, 8, 9)


def request(environment: bytes = b"A=1\0B=x=y\0", **changes: int) -> bytes:
    fields = {"magic": ATTACH_MAGIC, "version": ATTACH_VERSION, "pid": 5, "device": 0}
    fields |= {"environment_bytes": len(environment)} | changes
    return ATTACH_REQUEST.pack(**fields) + environment


def test_request_is_parsed() -> None:
    parsed = protocol.AttachRequest.parse(request())
    assert (parsed.pid, parsed.device) == (5, 0)
    assert parsed.environment == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"x" * 23,
        request(magic=1),
        request(version=1),
        request(environment_bytes=3),
        request(environment_bytes=1 << 31),
    ],
)
def test_damaged_request_is_refused(message: bytes) -> None:
    with pytest.raises(AttachError):
        protocol.AttachRequest.parse(message)


def test_a_kernel_without_pidfds_is_named_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", missing)
    with pytest.raises(AttachError, match=r"\[pidfd_open\] of \[pid 7\] fails with \[Function not"):
        clients._pidfd(7)
