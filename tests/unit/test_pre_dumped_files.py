"""The pages of a pre-dump go where their image goes: into memory, copies, disks, and away with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyft.agent import flushes
from pyft.images import image_folder, memory
from pyft.images.contents import Contents

NEEDS = 1 << 20


@pytest.fixture
def in_memory(tmp_path: Path) -> str:
    """Return a folder that stands for a file system in memory."""
    (tmp_path / "memory").mkdir()
    return str(tmp_path / "memory")


def image(images: Path, memory_folder: str = "") -> Path:
    """Return the folder of an image with a pre-dump, as CRIU leaves it."""
    pre_dump = image_folder.make_pre_dump(images, memory_folder, NEEDS)
    (pre_dump / "pages-1.img").write_bytes(b"before")
    folder = images / "7"
    image_folder.make(folder, memory_folder, NEEDS)
    assert image_folder.take_pre_dump(folder, pre_dump)
    (folder / "pages-1.img").write_bytes(b"since")
    (folder / "dump.log").write_text("said")
    (folder / image_folder.PARENT).symlink_to(image_folder.PRE_DUMP)
    return folder


def is_as_criu_left_it(folder: Path) -> bool:
    link = folder / image_folder.PARENT
    return (
        os.readlink(link) == image_folder.PRE_DUMP
        and (link / "pages-1.img").read_bytes() == b"before"
        and (folder / "pages-1.img").read_bytes() == b"since"
    )


@pytest.mark.parametrize("room", [3, 4])
def test_it_lies_where_its_image_will(
    tmp_path: Path, in_memory: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There has to be room for all pages once more."""
    monkeypatch.setattr(memory, "available", lambda: room * NEEDS)
    pre_dump = image_folder.make_pre_dump(tmp_path / "images", in_memory, NEEDS)
    assert pre_dump.parent == (Path(in_memory) if room == 4 else tmp_path / "images")
    image_folder.remove_pre_dump(tmp_path / "images", in_memory)
    assert not pre_dump.exists()


def test_what_an_image_before_it_has_left_is_not_in_it(tmp_path: Path) -> None:
    for _ in range(2):
        pre_dump = image_folder.make_pre_dump(tmp_path, "", NEEDS)
        assert os.listdir(pre_dump) == []
        (pre_dump / "pages-1.img").write_text("page")


def test_where_the_image_lies_elsewhere_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    pre_dump = image_folder.make_pre_dump(tmp_path, "", NEEDS)
    image_folder.make(tmp_path / "7", "", NEEDS)
    monkeypatch.setattr(Path, "rename", rename)
    assert not image_folder.take_pre_dump(tmp_path / "7", pre_dump)
    assert not pre_dump.exists()
    assert os.listdir(tmp_path / "7") == []


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_it_is_removed_and_dropped_with_its_image(
    tmp_path: Path, in_memory: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda: 100 * NEEDS)
    folder = image(tmp_path / "images", in_memory if where == "memory" else "")
    both = sum(path.stat().st_blocks for path in image_folder.files_of(folder).values())
    assert image_folder.bytes_of(image_folder.real(folder)) == 512 * both
    image_folder.drop(folder, in_memory)
    assert os.listdir(tmp_path / "images") == []
    assert os.listdir(in_memory) == ([image_folder.KEPT] if where == "memory" else [])
    image_folder.give_back(in_memory)
    assert os.listdir(in_memory) == []


def test_a_copy_has_it_and_a_link_of_its_own(tmp_path: Path) -> None:
    folder = image(tmp_path / "images")
    contents = Contents.from_note(Contents.of(folder, {}).note())
    stream = b"".join(contents.pieces(folder, {}))
    assert len(stream) == contents.bytes

    def fill(fd: int, start: int, end: int) -> None:
        nonlocal stream
        os.pwrite(fd, stream[: end - start], start)
        stream = stream[end - start :]

    contents.make_files(tmp_path / "copy", fill)
    assert is_as_criu_left_it(tmp_path / "copy")
    assert (tmp_path / "copy" / "pre-dump").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name",
    [
        *("pre-dump", "parent", "pre-dump/", "pre-dump/a/b", "pre-dump/..", "pre-dump/../x"),
        *("parent/pages-1.img", "other/pages-1.img", "/pre-dump/x", "../pre-dump/x"),
        *("pre-dump//x", "pre-dump/.x", "pre-dump/x\n"),
    ],
)
def test_another_host_cannot_write_outside_of_it(name: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        Contents.from_note({"files": [[name, 1]], "objects": []})


def test_a_flush_has_it_though_the_image_is_dropped(tmp_path: Path) -> None:
    folder = image(tmp_path / "images")
    links = flushes._links_to(folder)
    image_folder.remove(folder)
    names = [name for name, _ in Contents.of(links, {}).files]
    assert names == ["pages-1.img", "pre-dump/pages-1.img"]
    assert (links / "pre-dump" / "pages-1.img").read_bytes() == b"before"
