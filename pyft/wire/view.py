"""Fields of memory that processes share, by name; pyft/wire/layout.py says where they are."""

from __future__ import annotations

import functools
import os
import struct
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    """Where a field is in its structure, and its form as `struct` has it."""

    offset: int
    form: str

    @functools.cached_property
    def packer(self) -> struct.Struct:
        """Return what reads and writes it."""
        return struct.Struct("<" + self.form)

    @property
    def size(self) -> int:
        """Return its bytes."""
        return self.packer.size

    def read(self, raw: bytes, at: int = 0) -> Any:
        """Return the value in a structure that begins at `at`; several ones as a tuple."""
        return self._value(self.packer.unpack_from(raw, at + self.offset))

    def write(self, memory: Any, value: Any, at: int = 0) -> None:
        """Put a value into a structure that begins at `at`."""
        self.packer.pack_into(memory, at + self.offset, value)

    def pack(self, *values: Any) -> bytes:
        """Return the value as it lies in memory; several ones if it is an array."""
        return self.packer.pack(*values)

    def unpack(self, raw: bytes) -> Any:
        """Return the value of bytes that are nothing but this field."""
        return self._value(self.packer.unpack(raw))

    @staticmethod
    def _value(values: tuple[Any, ...]) -> Any:
        return values[0] if len(values) == 1 else values

    # ---- the same in an object that lies behind a descriptor -------------------------------------

    def get(self, fd: int, at: int = 0) -> Any:
        """Return the value in a structure that begins at `at`."""
        return self.unpack(os.pread(fd, self.size, at + self.offset))

    def put(self, fd: int, *values: Any, at: int = 0) -> None:
        """Put a value into a structure that begins at `at`."""
        os.pwrite(fd, self.pack(*values), at + self.offset)


def _form(fields: Iterable[Field]) -> tuple[str, int]:
    """Return the form of fields in the order of their places, and the place behind the last one."""
    form, at = "<", 0
    for field in fields:
        form += f"{field.offset - at}x{field.form}"
        at = field.offset + field.size
    return form, at


class View:
    """A structure, as far as it is of interest here."""

    def __init__(self, size: int, fields: Mapping[str, Field]) -> None:
        self.size = size
        self.fields = dict(fields)

    def __getitem__(self, name: str) -> Field:
        return self.fields[name]

    def read(self, raw: bytes, *names: str) -> dict[str, Any]:
        """Return fields by name, all of them if none is named."""
        packer, places = self._reader(names or tuple(self.fields))
        values = packer.unpack_from(raw)
        return {name: values[at] for name, at in places}

    @functools.cache  # noqa: B019  (there is one view for each structure)
    def _reader(self, names: tuple[str, ...]) -> tuple[struct.Struct, list[tuple[str, Any]]]:
        """Return what reads all of these at once, and where each one's value is in its result."""
        fields = sorted(
            ((name, self.fields[name]) for name in names), key=lambda one: one[1].offset
        )
        count, places = 0, []
        for name, field in fields:
            many = len(field.packer.unpack(bytes(field.size)))
            places.append((name, count if many == 1 else slice(count, count + many)))
            count += many
        return struct.Struct(_form(field for _, field in fields)[0]), places

    # ---- whole records, whose fields are all of one value ---------------------------------------

    @functools.cached_property
    def _record(self) -> tuple[struct.Struct, Any]:
        form, at = _form(self.fields.values())
        return struct.Struct(f"{form}{self.size - at}x"), namedtuple("Record", self.fields)  # noqa: PYI024

    def pack(self, *first: Any, **named: Any) -> bytes:
        """Return a record, of the first fields' values and of named ones; the others are 0."""
        packer, _ = self._record
        empty = {name: b"" if one.form.endswith("s") else 0 for name, one in self.fields.items()}
        values = dict(zip(empty, first, strict=False)) | named
        if unknown := values.keys() - empty.keys():
            raise KeyError(f"there is no field {sorted(unknown)}")
        return packer.pack(*(empty | values).values())

    def unpack(self, raw: bytes) -> Any:
        """Return the record with which the bytes begin, as a named tuple."""
        packer, record = self._record
        return record._make(packer.unpack_from(raw))

    def each(self, raw: bytes) -> Iterator[Any]:
        """Yield all records of an array, as named tuples."""
        packer, record = self._record
        return map(record._make, packer.iter_unpack(raw))

    def column(self, raw: bytes, name: str) -> Iterator[Any]:
        """Yield one field of all records of an array, in a tenth of the time of `each`."""
        field = self.fields[name]
        behind = self.size - field.offset - field.size
        packer = struct.Struct(f"<{field.offset}x{field.form}{behind}x")
        return (value for (value,) in packer.iter_unpack(raw))
