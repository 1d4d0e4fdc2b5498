"""Where images lie: in memory where there is room for them, and nothing is left of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyft._native import linux
from pyft.images import image_folder, memory

NEEDS = 1 << 20


@pytest.fixture
def in_memory(tmp_path: Path) -> str:
    """Return a folder that stands for a file system in memory."""
    (tmp_path / "memory").mkdir()
    return str(tmp_path / "memory")


def set_available(monkeypatch: pytest.MonkeyPatch, bytes: int) -> None:
    monkeypatch.setattr(memory, "available", lambda: bytes)


def test_an_image_lies_in_memory_where_it_fits(
    tmp_path: Path, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_available(monkeypatch, image_folder.SHARE * NEEDS)
    folder = tmp_path / "images" / "7"
    image_folder.make(folder, in_memory, NEEDS)
    (folder / "pages-1.img").write_text("page")
    assert (Path(in_memory) / "7" / "pages-1.img").read_text() == "page"
    assert image_folder.real(folder) == Path(in_memory) / "7"
    image_folder.remove(folder)
    assert not os.path.lexists(folder)
    assert os.listdir(in_memory) == []


@pytest.mark.parametrize("why", ["no room", "no memory"])
def test_else_it_lies_in_the_folder_of_the_job(
    tmp_path: Path, in_memory: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_available(monkeypatch, image_folder.SHARE * NEEDS - (why == "no room"))
    folder = tmp_path / "images" / "7"
    image_folder.make(folder, in_memory if why == "no room" else "", NEEDS)
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert image_folder.real(folder) == folder
    (folder / "pages-1.img").write_text("page")
    image_folder.remove(folder)
    assert not folder.exists()


def test_what_is_left_of_one_that_was_given_up_is_not_in_the_next_one(
    tmp_path: Path, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "images" / "7"
    for room in (True, False, True):
        set_available(monkeypatch, image_folder.SHARE * NEEDS * room)
        image_folder.make(folder, in_memory, NEEDS)
        assert os.listdir(folder) == []
        assert os.listdir(in_memory) == ["7"] * room
        (folder / "pages-1.img").write_text("page")


def test_what_a_dropped_image_had_in_memory_is_for_the_next_one(
    tmp_path: Path, in_memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given back only then, and no sooner if there is room for it; one image is kept."""
    set_available(monkeypatch, image_folder.SHARE * NEEDS)
    for name in ("7", "8"):
        image_folder.make(tmp_path / "images" / name, in_memory, NEEDS)
        (tmp_path / "images" / name / f"pages-{name}.img").write_bytes(bytes(NEEDS))
    for name, left in (("7", {"8"}), ("8", set())):
        image_folder.drop(tmp_path / "images" / name, in_memory)
        assert set(os.listdir(in_memory)) == {image_folder.KEPT, *left}
        assert os.listdir(Path(in_memory) / image_folder.KEPT) == [f"pages-{name}.img"]
    assert os.listdir(tmp_path / "images") == []
    image_folder.give_back(in_memory)
    assert os.listdir(in_memory) == []


@pytest.mark.parametrize(
    "where", ["memory without room", "another memory", "the folder of the job"]
)
def test_else_nothing_is_kept(
    tmp_path: Path, in_memory: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_available(monkeypatch, image_folder.SHARE * NEEDS)
    folder = tmp_path / "images" / "7"
    image_folder.make(folder, "" if where == "the folder of the job" else in_memory, NEEDS)
    (folder / "pages-1.img").write_bytes(bytes(NEEDS))
    set_available(monkeypatch, NEEDS // 2 if where == "memory without room" else 9 * NEEDS)
    image_folder.drop(folder, str(tmp_path) if where == "another memory" else in_memory)
    assert os.listdir(in_memory) == []
    assert os.listdir(tmp_path / "images") == []


def test_the_memory_ends_with_its_descriptor(need: object) -> None:
    """It is mounted nowhere, and other processes find it as long as that is open."""
    fd = image_folder.in_memory()
    if fd < 0:
        need("root", False, "mounts need root")  # type: ignore[operator]
    name = Path(image_folder.name_of(fd))
    mounts = Path("/proc/self/mountinfo").read_text()
    (name / "7").mkdir()
    (name / "7" / "pages-1.img").write_bytes(bytes(NEEDS))
    assert os.stat(name).st_mode & 0o777 == 0o700
    assert Path("/proc/self/mountinfo").read_text() == mounts
    os.close(fd)
    assert not name.exists()


def test_without_large_pages_it_has_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def tmpfs(options: dict[str, str]) -> int:
        tried.append(options.pop("huge", ""))
        if tried[-1]:
            raise OSError(22, "Invalid argument")
        return 5

    monkeypatch.setattr(linux, "detached_tmpfs", tmpfs)
    assert image_folder.in_memory() == 5
    assert tried == ["within_size", ""]


def test_where_nothing_may_be_mounted_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def tmpfs(options: dict[str, str]) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(linux, "detached_tmpfs", tmpfs)
    assert image_folder.in_memory() == -1
    assert image_folder.name_of(-1) == ""


@pytest.mark.parametrize(("most", "left"), [("1000", 1000 - 700 + 250), ("max", None), ("500", 50)])
def test_the_limit_of_the_container_counts(
    tmp_path: Path, most: str, left: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any group above the process's own, which may have none."""
    groups, files = tmp_path / "cgroup", tmp_path / "fs"
    own = files / "pod" / "job"
    own.mkdir(parents=True)
    groups.write_text("1:name=systemd:/else\n0::/pod/job\n")
    for folder, limit in ((own, "max"), (own.parent, most)):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("700")
        (folder / "memory.stat").write_text("anon 450\nactive_file 100\ninactive_file 150\n")
    monkeypatch.setattr(memory, "_GROUPS", groups)
    monkeypatch.setattr(memory, "_GROUP_FILES", files)
    assert list(memory._left_to_groups()) == ([] if left is None else [left])
    assert (memory.available() == left) == (left is not None)


def test_groups_of_the_kernels_first_version_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, files = tmp_path / "cgroup", tmp_path / "fs"
    own = files / "memory" / "docker" / "job"
    own.mkdir(parents=True)
    groups.write_text("4:hugetlb,memory:/docker/job\n0::/\n")
    (own / "memory.limit_in_bytes").write_text("1000")
    (own / "memory.usage_in_bytes").write_text("700")
    (own / "memory.stat").write_text(
        "active_file 1\ninactive_file 1\ntotal_active_file 100\ntotal_inactive_file 150\n"
    )
    monkeypatch.setattr(memory, "_GROUPS", groups)
    monkeypatch.setattr(memory, "_GROUP_FILES", files)
    assert list(memory._left_to_groups()) == [550]
    assert memory.available() == 550
