"""What an image consists of: CRIU's files and the clients' memory objects, as one stream of bytes.

The stream has the files one after the other, then the parts of the memory objects that are no holes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyft.images import image_folder, memory
from pyft.images.appended import open_at_once

CHUNK = 1 << 20
MOST_BYTES = 1 << 40  # of one file or memory object, holes included
MOST_FILES, MOST_EXTENTS, MOST_CLIENTS = 65536, 1 << 20, 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FILE = re.compile(rf"({image_folder.PRE_DUMP}/)?{_NAME.pattern}")
_TAKEN = (image_folder.PRE_DUMP, image_folder.PARENT)  # no names of files

Fill = Callable[[int, int, int], None]  # descriptor, from, to


@dataclass(frozen=True)
class Object:
    """A memory object of a client: which of memory.PARTS, its size, and where it is no hole."""

    client: int
    part: int
    size: int
    extents: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Contents:
    """Names and sizes of all that is in the stream, in its order."""

    files: Sequence[tuple[str, int]]
    objects: Sequence[Object]

    @classmethod
    def of(cls, folder: Path, fds: Mapping[int, Sequence[int]]) -> Contents:
        """Look at an image. `fds`: of each client's memory objects."""
        found = image_folder.files_of(folder)
        files = [(name, path.stat().st_size) for name, path in found.items()]
        objects = [
            Object(client, part, os.fstat(fd).st_size, list(memory.data_of(fd)))
            for client, of_client in fds.items()
            for part, fd in enumerate(of_client)
        ]
        return cls(files, objects)

    @classmethod
    def from_note(cls, note: Any) -> Contents:
        """Return what `note` has returned; raise ValueError where it is none."""
        try:
            if not isinstance(note["files"], list) or not isinstance(note["objects"], list):
                raise ValueError("the files or memory objects are no list")
            files = [(_file(name), _number(size, MOST_BYTES)) for name, size in note["files"]]
            objects = [_object(*row) for row in note["objects"]]
        except (TypeError, KeyError) as error:
            raise ValueError(f"the list of files and memory objects is none: {error}") from None
        if len(files) > MOST_FILES or len(objects) > MOST_CLIENTS * len(memory.PARTS):
            raise ValueError("it has too many files or memory objects")
        if len({name for name, _ in files}) < len(files):
            raise ValueError("it has a file twice")
        return cls(files, objects)

    def with_files(self, files: Mapping[str, int]) -> Contents:
        """Return it with more files behind its own, by name and size; raise ValueError."""
        if twice := files.keys() & {name for name, _ in self.files}:
            raise ValueError(f"it has [{min(twice)}] twice")
        return Contents([*self.files, *files.items()], self.objects)

    def note(self) -> dict[str, Any]:
        """Return all of it, in plain values."""
        rows = [[o.client, o.part, o.size, [list(e) for e in o.extents]] for o in self.objects]
        return {"files": [list(row) for row in self.files], "objects": rows}

    @property
    def bytes(self) -> int:
        """Return the length of the stream."""
        return sum(size for _, size in self.files) + self.memory_bytes

    @property
    def memory_bytes(self) -> int:
        """Return how much of it is memory."""
        return sum(end - start for o in self.objects for start, end in o.extents)

    def pieces(
        self,
        folder: Path,
        fds: Mapping[int, Sequence[int]],
        elsewhere: Mapping[str, str] | None = None,
    ) -> Iterator[bytes]:
        """Yield the stream. Raise OSError when a file has become shorter.

        `elsewhere`: paths of files that are not in the folder.
        """
        for name, size in self.files:
            path = (elsewhere or {}).get(name, str(folder / name))
            with open(path, "rb", opener=open_at_once) as file:
                yield from _read(file.fileno(), 0, size)
        for one in self.objects:
            for start, end in one.extents:
                yield from _read(fds[one.client][one.part], start, end)

    def make_files(self, folder: Path, fill: Fill) -> None:
        """Make the files; `fill` writes the next bytes of the stream into each."""
        folder.mkdir(parents=True, mode=0o700)
        if any("/" in name for name, _ in self.files):
            (folder / image_folder.PRE_DUMP).mkdir(mode=0o700)
            image_folder.link_to_pre_dump(folder)
        for name, size in self.files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            fd = os.open(folder / name, flags, 0o600)
            try:
                fill(fd, 0, size)
            finally:
                os.close(fd)

    def make_memory(self, names: Mapping[int, str], fill: Fill, made: dict[int, list[int]]) -> None:
        """Make the memory objects in `made`, which keeps those that there are when this fails.

        `names`: of the clients' channels.
        """
        for one in self.objects:
            of_client = made.setdefault(one.client, [])
            if one.client not in names or one.part != len(of_client):
                raise ValueError("a memory object is out of its order")
            name = _name(names[one.client])
            fd = memory.new(f"pyft-{memory.PARTS[one.part]}-{name}", one.size)
            of_client.append(fd)
            for start, end in one.extents:
                fill(fd, start, end)
            memory.seal(fd)
        if any(len(made.get(client, ())) != len(memory.PARTS) for client in names):
            raise ValueError("a client's memory is missing")


def remove(folder: Path, made: dict[int, list[int]]) -> None:
    """Leave nothing of what make_files() and make_memory() have made."""
    for fd in (fd for of_client in made.values() for fd in of_client):
        os.close(fd)
    made.clear()
    image_folder.remove(folder)


def _object(client: Any, part: Any, size: Any, extents: Any) -> Object:
    size, at, checked = _number(size, MOST_BYTES), 0, []
    if len(extents) > MOST_EXTENTS:
        raise ValueError("a memory object has too many parts")
    for start, end in extents:
        if not at <= _number(start, size) <= _number(end, size):
            raise ValueError("a part of a memory object lies outside of it")
        checked.append((start, end))
        at = end
    return Object(_number(client, 1 << 62), _number(part, len(memory.PARTS) - 1), size, checked)


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"[{value!r:.40}] is no size")
    return value


def _file(value: Any) -> str:
    if not isinstance(value, str) or not _FILE.fullmatch(value) or value in _TAKEN:
        raise ValueError(f"[{value!r:.40}] is no name")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"[{value!r:.40}] is no name")
    return value


def _read(fd: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        data = os.pread(fd, min(CHUNK, end - start), start)
        if not data:
            raise OSError(5, "it has become shorter")
        start += len(data)
        yield data
