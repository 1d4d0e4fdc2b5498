"""How a client attaches: its request and the agent's reply (proxy/ring/attach.h)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyft.errors import AttachError
from pyft.wire.layout import (
    ATTACH_MAGIC,
    ATTACH_REPLY,
    ATTACH_REQUEST,
    ATTACH_VERSION,
    MAX_ENVIRONMENT_BYTES,
)


@dataclass(frozen=True)
class AttachRequest:
    """A client's first message: which one it is, which device it wants, and its environment."""

    pid: int
    device: int
    environment: dict[str, str]

    @classmethod
    def parse(cls, message: bytes) -> AttachRequest:
        """Check every field, since the sender may be anything."""
        if len(message) < ATTACH_REQUEST.size:
            raise AttachError(f"the attach request has only [{len(message)}] bytes", 22)
        head = ATTACH_REQUEST.unpack(message)
        if head.magic != ATTACH_MAGIC:
            what = f"the attach request starts with [{head.magic:#x}], not a pyft client"
            raise AttachError(what, 22)
        if head.version != ATTACH_VERSION:
            versions = f"version [{head.version}], the agent [{ATTACH_VERSION}]"
            raise AttachError(f"the client speaks attach {versions}", 71)
        size = head.environment_bytes
        if size > MAX_ENVIRONMENT_BYTES or size != len(message) - ATTACH_REQUEST.size:
            raise AttachError(f"the client's environment of [{size}] bytes is cut or too long", 7)
        environment = parse_environment(message[ATTACH_REQUEST.size :])
        return cls(head.pid, head.device, environment)


def parse_environment(data: bytes) -> dict[str, str]:
    """Split "A=1\\0B=2\\0"; entries without a name are dropped, as the kernel allows them."""
    environment = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            environment[name.decode(errors="surrogateescape")] = value.decode(
                errors="surrogateescape"
            )
    return environment


def number_in(environment: Mapping[str, str], name: str) -> int | None:
    """Return a small number that a variable holds, None if there is none."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 7 else None


@dataclass(frozen=True)
class Sizes:
    """Bytes of the memory objects of a channel; the store is its server's only."""

    log: int
    control: int
    bounce: int
    pinned: int
    store: int = 0


def pack_reply(
    device: int, client_pid: int, server_pid: int, epoch: int, sizes: Sizes, settings: str = ""
) -> bytes:
    """Return an AttachReply that grants the request; the descriptors go with it.

    `settings` changes the environment of a server that was started before it was needed.
    """
    return ATTACH_REPLY.pack(
        magic=ATTACH_MAGIC,
        version=ATTACH_VERSION,
        device=device,
        client_pid=client_pid,
        server_pid=server_pid,
        epoch=epoch,
        log_bytes=sizes.log,
        control_bytes=sizes.control,
        bounce_bytes=sizes.bounce,
        pinned_bytes=sizes.pinned,
        store_bytes=sizes.store,
        text=settings.encode(errors="surrogateescape"),
    )


def pack_refusal(error: int, text: str) -> bytes:
    """Return an AttachReply that refuses the request."""
    return ATTACH_REPLY.pack(
        magic=ATTACH_MAGIC,
        version=ATTACH_VERSION,
        error=error,
        text=text.encode(errors="replace")[: ATTACH_REPLY["text"].size - 1],
    )
