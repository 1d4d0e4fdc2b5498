"""Messages on the wire: the same bytes as ever, also by C++ (tests/wire/messages_test.cc)."""

from __future__ import annotations

import dataclasses
import enum
import sys
from pathlib import Path

import pytest

from pyft.wire import messages as wire
from pyft.wire import packet

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import gen_wire  # noqa: E402
import wire_messages  # noqa: E402

ZERO = "0" * 16
# A message, and what follows its magic.
BYTES = [
    (
        wire.Audited(50, 2, 1, 100),
        f"21000000 3200000000000000 0200000001000000 6400000000000000 {ZERO}",
    ),
    (wire.Live(), f"01000000 {ZERO} {ZERO} {ZERO} {ZERO}"),
    (
        wire.WantExport(0x1122334455667788, 3, wire.ExportReason.DIVIDING),
        f"02000000 8877665544332211 0300000000000000 0200000000000000 {ZERO}",
    ),
    (
        wire.Left(7, wire.MINTER),
        f"74000000 0700000000000000 ffffffffffffffff {ZERO} {ZERO}",
    ),
    (wire.Commit(9, final=True), f"6a000000 0900000000000000 0100000000000000 {ZERO} {ZERO}"),
    (
        wire.Fault(2, -700, 5, b"why"),
        "1e000000 0200000000000000 44fdffff00000000 0500000000000000 0300000000000000 776879",
    ),
    (
        wire.Exported(7, 1, 5, 6, b"i"),
        "04000000 0700000000000000 0100000000000000 0500000006000000 0100000000000000 69",
    ),
    (
        wire.Export(7, 2, wire.ExportAnswer.OTHERS_ENDED),
        f"67000000 0700000000000000 0200000000000000 feffffffffffffff {ZERO}",
    ),
]


@pytest.mark.parametrize(("message", "digits"), BYTES, ids=lambda one: type(one).__name__)
def test_bytes(message: wire.Message, digits: str) -> None:
    data = b"PFTM" + bytes.fromhex(digits)
    assert packet.pack(message) == data
    assert packet.unpack(data) == message


def other(value: object) -> object:
    """Return another value of the same type."""
    if isinstance(value, bytes):
        return b"some"
    values = list(type(value)) if isinstance(value, enum.Enum) else [type(value)(1)]
    return values[-1]


def test_every_kind_comes_back() -> None:
    for kind in wire.KINDS.values():
        default = kind()
        values = {field.name: getattr(default, field.name) for field in dataclasses.fields(kind)}
        for name, value in values.items():
            message = dataclasses.replace(default, **{name: other(value)})
            assert message != default
            assert packet.unpack(packet.pack(message)) == message


def test_damaged_messages_are_refused() -> None:
    data = packet.pack(wire.Fault(payload=b"payload"))
    unknown = data[:4] + b"\xff" + data[5:]
    for damaged in (b"", data[:39], data[:-1], b"x" + data[1:], data + b"x", unknown):
        with pytest.raises(ValueError, match="server's message"):
            packet.unpack(damaged)
    with pytest.raises(ValueError, match="payload of a message has"):
        packet.pack(wire.Inject(bytes(packet.MAX_PAYLOAD_BYTES + 1)))
    reason = packet.pack(wire.WantExport(1, 2))
    with pytest.raises(ValueError, match="ExportReason"):
        packet.unpack(reason[:24] + b"\x09" + reason[25:])


def test_what_is_kept_in_git_is_fresh() -> None:
    for name, emit in gen_wire.kept(gen_wire.WIRE).items():
        assert (ROOT / name).read_text() == emit(), "run tools/gen/gen_wire.py --root ."


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('direction = "to nobody"', "direction"),
        ('fields = [{ name = "x", type = "u7", doc = "x" }]', "type"),
        ('fields = [{ name = "x", type = "high_u32", doc = "x" }]', "lower half"),
        ("fields = [" + '{ name = "x", type = "u64", doc = "x" }, ' * 4 + "]", "words"),
        ('colour = "red"', "unknown keys"),
    ],
)
def test_mistakes_in_the_table_are_refused(tmp_path: Path, line: str, why: str) -> None:
    table = tmp_path / "messages.toml"
    head = '[header]\nmagic = 1\nmax_payload_bytes = 2\n[[message]]\nname = "One"\nnumber = 1\n'
    rest = "" if line.startswith("direction") else 'direction = "server to agent"\n'
    table.write_text(f'{head}doc = "one"\n{rest}{line}\n')
    with pytest.raises(wire_messages.TableError, match=why):
        wire_messages.load(table)
