"""A file system that loses what was not synced: all states in which a crash can leave a folder.

It keeps the operations in their order. What a crash leaves is each combination of the operations that
nothing has made durable, applied in order: names that came or went, and data that were written to the
end, in part, or not at all. Stricter than any journal: operations on names may be lost one by one.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = PurePosixPath()
State = dict[PurePosixPath, bytes | None]


class CrashError(Exception):
    """The machine has lost its power."""


@dataclass
class Node:
    """A file or a folder, whatever its name is."""

    is_folder: bool
    data: bytes = b""  # written
    synced: int = 0  # so much of that is durable
    names: dict[str, Node] = field(default_factory=dict)  # as processes see them
    durable: dict[str, Node] = field(default_factory=dict)  # of `names`, synced
    # Since the last sync: what was done to the names in this folder: name, node or None.
    changes: list[tuple[tuple[str, Node | None], ...]] = field(default_factory=list)


class ModelDisk:
    """Stands for pyft.flush.disk.Disk. `crash_at`: the operation before which the power goes."""

    def __init__(
        self, root: Path, crash_at: int = -1, full_at: int = -1, folders: Sequence[str] = ()
    ) -> None:
        """`folders`: of the root, which are there and are durable."""
        self._root = root
        self.top = Node(True)
        for name in folders:
            self.top.names[name] = self.top.durable[name] = Node(True)
        self.operations = 0
        self.crash_at = crash_at
        self.full_at = full_at  # the n-th operation fails: no space is left
        self._files: dict[int, Node] = {}

    def _count(self) -> None:
        if self.operations == self.crash_at:
            raise CrashError
        self.operations += 1
        if self.operations - 1 == self.full_at:
            raise OSError(28, "No space left on device")

    def _at(self, path: Path) -> Node:
        node = self.top
        for part in path.relative_to(self._root).parts:
            node = node.names[part]
        return node

    def _change(self, path: Path, *changes: tuple[str, Node | None]) -> None:
        folder = self._at(path.parent)
        folder.changes.append(changes)
        for name, node in changes:
            if node is None:
                folder.names.pop(name)
            else:
                assert name not in folder.names, f"{name} is overwritten"
                folder.names[name] = node

    def make_folder(self, path: Path) -> None:
        self._count()
        self._change(path, (path.name, Node(True)))

    def create(self, path: Path) -> int:
        self._count()
        node = Node(False)
        self._change(path, (path.name, node))
        self._files[len(self._files)] = node
        return len(self._files) - 1

    def write(self, fd: int, data: bytes | memoryview) -> None:
        self._count()
        self._files[fd].data += bytes(data)

    def sync_file(self, fd: int) -> None:
        self._count()
        self._files[fd].synced = len(self._files[fd].data)

    def close(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        self._count()
        folder = self._at(path)
        folder.durable, folder.changes = dict(folder.names), []

    def rename(self, path: Path, to: Path) -> None:
        self._count()
        self._change(path, (path.name, None), (to.name, self._at(path)))

    def names(self, path: Path) -> list[str]:
        return list(self._at(path).names)

    def remove(self, path: Path) -> None:
        """Each name in it goes by itself, and the power may go in between."""
        if path.name not in self._at(path.parent).names:
            return
        with contextlib.suppress(OSError):  # as the real one
            for name in list(self._at(path).names):
                self._count()
                self._change(path / name, (name, None))
            self._count()
            self._change(path, (path.name, None))

    # ---- after the crash ----------------------------------------------------------------------

    def states(self) -> Iterator[State]:
        """Yield what can be there afterwards: data by path, None for a folder."""
        yield from _states(self.top, ROOT)

    def draw(self, draw: random.Random, count: int) -> Iterator[State]:
        """Yield some of them: of each folder of the root any state, whatever the others' are."""
        of_each = [list(_states(node, ROOT / name)) for name, node in self.top.names.items()]
        for _ in range(count):
            state: State = {}
            for states in of_each:
                state |= draw.choice(states)
            yield {path: data for path, data in state.items() if len(path.parts) > 1}


def _states(folder: Node, path: PurePosixPath) -> Iterator[State]:
    seen = []
    for kept in itertools.product((False, True), repeat=len(folder.changes)):
        names = dict(folder.durable)
        for change, is_kept in zip(folder.changes, kept, strict=True):
            for name, node in change if is_kept else ():
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
        if names in seen:
            continue
        seen.append(names)
        below = [list(_states_of(node, path / name)) for name, node in names.items()]
        for combination in itertools.product(*below):
            state: State = {} if path == ROOT else {path: None}
            for part in combination:
                state |= part
            yield state


def _states_of(node: Node, path: PurePosixPath) -> Iterator[State]:
    if node.is_folder:
        yield from _states(node, path)
        return
    half = (node.synced + len(node.data) + 1) // 2
    for length in sorted({node.synced, half, len(node.data)}):
        yield {path: node.data[:length]}


def make(state: State, root: Path) -> None:
    """Make a state of files and folders."""
    for path, data in state.items():
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
