"""Lines in several folders, of which some may be lost: at any time, and together with the power."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crashes import CrashError, ModelDisk, make
from drawn_lines import DrawnLines

from pyft._native import isal
from pyft.flush import manifest, reader
from pyft.flush.manifest import FlushError
from pyft.flush.writer import Writer

DRAWN_LINES = DrawnLines(30, 7)  # two stripes each
write, taken = DRAWN_LINES.write, DRAWN_LINES.taken
LINES = 2
DRAWN = 2  # of the states that a crash can leave, for each operation


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several stripes, of few bytes."""
    monkeypatch.setattr(manifest, "CELL", 16)


def new_folders(root: Path, count: int) -> list[Path]:
    folders = [root / f"f{at}" for at in range(count)]
    for folder in folders:
        folder.mkdir(parents=True, mode=0o700)
    return folders


@pytest.mark.parametrize(("data", "parity"), [(1, 1), (2, 1), (2, 2), (4, 2), (3, 3)])
def test_each_pattern_of_lost_folders(
    tmp_path: Path, data: int, parity: int, need: Callable[[str, bool, str], None]
) -> None:
    """Up to the parity nothing is lost; with one more the line is refused by name."""
    need("isal", parity == 1 or not isal.lacks(), isal.lacks())
    folders = new_folders(tmp_path / "whole", data + parity)
    writer = Writer(folders, parity, [])
    write(writer, 1)
    write(writer, 2)
    for lost in range(parity + 2):
        for pattern in itertools.combinations(range(len(folders)), lost):
            shutil.copytree(tmp_path / "whole", tmp_path / "left")
            left = [tmp_path / "left" / folder.name for folder in folders]
            for at in pattern:
                shutil.rmtree(left[at])
                left[at].mkdir(mode=0o700)
            if lost <= parity:
                assert taken(left, tmp_path / "images") == 2
                assert taken(left[::-1], tmp_path / "images") == 2, "their order does not count"
            else:
                named = rf"line \[2\]: \[{left[pattern[0]]}/line-2\]"
                with pytest.raises(FlushError, match=named if lost < len(left) else "it has none"):
                    reader.newest(left, tmp_path / "images")
            shutil.rmtree(tmp_path / "left")


def test_each_flip_in_each_folder_is_put_right(tmp_path: Path) -> None:
    """Also in two folders at once, if not in the same stripe."""
    folders = new_folders(tmp_path, 3)
    write(Writer(folders, 1, []), 1)
    files = [folder / "line-1" / manifest.DATA for folder in folders]
    whole = [path.read_bytes() for path in files]
    for at, path in enumerate(files):
        for place in range(len(whole[at])):
            flipped = bytearray(whole[at])
            flipped[place] ^= 1 << place % 8
            path.write_bytes(flipped)
            other = (at + 1) % len(files)
            far = bytearray(whole[other])
            far[0 if place >= manifest.CELL else -1] ^= 1  # of another stripe
            files[other].write_bytes(far)
            assert taken(folders, tmp_path / "images") == 1
            near = bytearray(whole[other])
            near[min(place, len(near) - 1)] ^= 1
            files[other].write_bytes(near)
            with pytest.raises(FlushError, match=r"\[2\] of \[3\] cells of stripe \[\d\] are lost"):
                reader.newest(folders, tmp_path / "images")
            files[other].write_bytes(whole[other])
            path.write_bytes(whole[at])


def crashed(folders: list[Path], root: Path, crash_at: int) -> tuple[ModelDisk, int]:
    """Write lines until the power goes; return the disk, and the last line that was durable."""
    disk, durable = ModelDisk(root, crash_at, folders=[f.name for f in folders]), 0
    writer = Writer(folders, 1, [], disk)
    try:
        for number in range(1, LINES + 1):
            write(writer, number)
            durable = number
    except CrashError:
        pass
    return disk, durable


def test_a_crash_and_the_loss_of_any_folder(tmp_path: Path) -> None:
    """At each operation; the states of the folders are drawn, each with any of them lost, or none."""
    root, draw = tmp_path / "flush", random.Random(22)
    folders = [root / name for name in ("a", "b", "c")]
    count, found = crashed(folders, root, -1)
    assert found == LINES
    for crash_at in range(count.operations + 1):
        disk, durable = crashed(folders, root, crash_at)
        for state in disk.draw(draw, DRAWN):
            for lost in (None, *folders):
                root.mkdir()
                for folder in folders:
                    folder.mkdir(mode=0o700)
                make(state, root)
                if lost:
                    shutil.rmtree(lost)
                    lost.mkdir(mode=0o700)
                assert taken(folders, tmp_path / "images") >= durable, f"{crash_at} {lost} {state}"
                shutil.rmtree(root)


def test_a_folder_that_fails_is_left_out(tmp_path: Path) -> None:
    """At each of its operations; with the others the line is whole."""
    root = tmp_path / "flush"
    left_out = 0
    for full_at in range(crashed([root / "a", root / "b", root / "c"], root, -1)[0].operations):
        folders = [root / name for name in ("a", "b", "c")]
        disk = ModelDisk(root, full_at=full_at, folders=[f.name for f in folders])
        writer = Writer(folders, 1, [], disk)
        for number in range(1, LINES + 1):
            write(writer, number)
            left_out += len(writer.failed)
            assert len(writer.failed) < 2
        for folder in folders:
            folder.mkdir(parents=True, mode=0o700)
        make(next(disk.draw(random.Random(1), 1)), root)
        assert taken(folders, tmp_path / "images") == LINES
        shutil.rmtree(root)
    assert left_out > 20
