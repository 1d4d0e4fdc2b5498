"""What Python knows of shared memory is what the compiler says of the C++ headers."""

from __future__ import annotations

import enum
import re
import shutil
import struct
import sys
from pathlib import Path

import pytest

from pyft.wire import layout
from pyft.wire.view import Field, View

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import gen_layout  # noqa: E402


def test_the_module_is_fresh() -> None:
    if not shutil.which("c++"):
        pytest.skip("[compiler]: no C++ compiler")
    kept = (ROOT / gen_layout.KEPT).read_text()
    assert kept == gen_layout.layout(), "run tools/gen/gen_layout.py --root ."


def test_enums_are_whole() -> None:
    """Their values are the compiler's; which there are stands in layout_view.cc once more."""
    headers = "".join(path.read_text() for path in sorted((ROOT / "proxy" / "ring").glob("*.h")))
    for name, mirror in vars(layout).items():
        if not (isinstance(mirror, type) and issubclass(mirror, enum.Enum)):
            continue
        (body,) = re.findall(rf"^enum (?:class )?{name}\b[^{{]*{{(.*?)^}};", headers, re.M | re.S)
        constants = re.findall(r"^  k(\w+) = \d+,", body, re.M)
        assert [one.name.replace("_", "") for one in mirror] == [c.upper() for c in constants], name


def test_logs_of_old_jobs_can_be_read() -> None:
    """Traces outlive a build: these places change only with LAYOUT_VERSION."""
    assert layout.LAYOUT_VERSION == 2
    places = {
        name: layout.LOG_HEADER[name].offset for name in ("ring_offset", "appended", "oldest")
    }
    assert places == {"ring_offset": 8, "appended": 64, "oldest": 120}
    assert layout.ENTRY_HEADER.size == 48


SOME = View(24, {"one": Field(0, "I"), "two": Field(8, "2I"), "name": Field(16, "5s")})


def test_fields() -> None:
    memory = bytearray(48)
    struct.pack_into("<II", memory, 24 + 8, 7, 8)
    SOME["one"].write(memory, 0xFFFFFFFF, at=24)
    assert SOME["two"].read(memory, at=24) == (7, 8)
    assert SOME.read(bytes(memory[24:]), "one") == {"one": 0xFFFFFFFF}
    assert memory[:24] == bytes(24)


def test_fields_that_are_read_at_once() -> None:
    raw = struct.pack("<I4xII5s3x", 3, 7, 8, b"ab")
    assert SOME.read(raw) == {"one": 3, "two": (7, 8), "name": b"ab\0\0\0"}
    assert SOME.read(raw, "name", "two") == {"name": b"ab\0\0\0", "two": (7, 8)}
    for name, field in layout.CONTROL_PAGE.fields.items():
        page = bytes(i * 31 % 251 for i in range(layout.PAGE_BYTES))
        assert layout.CONTROL_PAGE.read(page)[name] == field.read(page)


def test_records() -> None:
    view = View(16, {"one": Field(0, "I"), "two": Field(8, "5s")})
    assert view.pack(1, two=b"abc") == b"\1\0\0\0" + bytes(4) + b"abc" + bytes(5)
    assert view.pack() == bytes(16)
    record = view.unpack(view.pack(one=3, two=b"hello") + b"more")
    assert (record.one, record.two) == (3, b"hello")
    both = view.pack(4) + view.pack(5, b"x")
    assert [one.one for one in view.each(both)] == [*view.column(both, "one")] == [4, 5]
    assert [*view.column(both, "two")] == [bytes(5), b"x".ljust(5, b"\0")]
    with pytest.raises(KeyError, match="three"):
        view.pack(three=3)
