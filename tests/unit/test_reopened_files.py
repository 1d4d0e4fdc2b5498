"""Files that a program opens for each line: what is noted of them, and how they are cut back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyft import _native
from pyft.images import reopened
from pyft.images.appended import Log
from pyft.images.reopened import Opened

LIBRARY = _native.native_dir() / "libpyft_appended.so"
EACH = """
import os, sys
def add(path, line, **more):
    with open(path, "a", **more) as file:
        file.write(line)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / reopened.NAME


def run(notes: Path, text: str) -> None:
    """Run a program with the library, in the folder of the notes."""
    environment = os.environ | {"LD_PRELOAD": str(LIBRARY), "PYFT_APPENDED": str(notes)}
    line = [sys.executable, "-c", EACH + text]
    subprocess.run(line, env=environment, cwd=notes.parent, check=True, timeout=60)


def note_of(path: Path, size: int) -> bytes:
    about = path.stat()
    return b"%d %d %d %s\0" % (about.st_dev, about.st_ino, size, os.fsencode(path))


def test_each_file_is_noted_once_with_its_length(notes: Path) -> None:
    folder = notes.parent
    (folder / "old").write_text("12345")
    run(
        notes,
        "add('old', 'a'); add('old', 'b'); add('new', 'c'); add('a b\\nc', 'd'); add('new', 'e')",
    )
    assert [(one.path, one.size) for one in reopened.read(notes)] == [
        (str(folder / "old"), 5), (str(folder / "new"), 0), (str(folder / "a b\nc"), 0),
    ]  # fmt: skip
    assert (folder / "old").read_text() == "12345ab"
    assert notes.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "os.write(os.open('x', os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o640), b'1')",
        "os.write(os.open('x', os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o640,"
        " dir_fd=os.open('.', os.O_RDONLY)), b'1')",
        "os.umask(0o137); os.system('echo 1 >> x')",
        "import ctypes; os.umask(0o026); c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p;"
        " assert c.fopen(b'x', b'a')",
    ],
)
def test_in_whatever_way_it_is_opened(notes: Path, text: str) -> None:
    run(notes, text)
    assert [(one.path, one.size) for one in reopened.read(notes)] == [(str(notes.parent / "x"), 0)]
    assert (notes.parent / "x").stat().st_mode & 0o777 == 0o640


def test_nothing_else_is_noted_and_failures_stay(notes: Path) -> None:
    text = """
open("w", "w").write("1"); open("w").read(); open("w", "r+").write("2")
open("/dev/null", "a").write("3"); os.mkfifo("pipe"); os.open("pipe", os.O_RDWR | os.O_APPEND)
os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
for path in ("none/x", "."):
    try:
        add(path, "4")
        raise SystemExit(f"[{path}] was opened")
    except (FileNotFoundError, IsADirectoryError):
        pass
"""
    run(notes, text)
    assert not notes.exists()


def test_a_program_goes_on_where_nothing_can_be_noted(notes: Path) -> None:
    notes.mkdir()
    run(notes, "add('x', '1')")
    assert (notes.parent / "x").read_text() == "1"


def test_notes_have_an_end(notes: Path) -> None:
    notes.touch()
    os.truncate(notes, reopened.MOST_BYTES)
    run(notes, "add('x', '1')")
    assert notes.stat().st_size == reopened.MOST_BYTES


def test_files_are_cut_back_to_what_the_image_has(notes: Path) -> None:
    folder = notes.parent
    (folder / "later").write_text("of another job\n")
    run(notes, "add('before', '1'); add('gone', '1'); add('other', '1')")
    image = reopened.of_image(notes, [])
    run(notes, "add('before', '2'); add('later', '2'); add('new', '2'); add('other', '2')")
    (folder / "gone").unlink()
    (folder / "other").rename(folder / "moved")
    (folder / "other").write_text("12345")
    cut = reopened.cut_back(reopened.from_note(image), [])
    assert cut == [str(folder / name) for name in ("before", "later", "new")]
    assert (folder / "before").read_text() == "1"
    assert (folder / "later").read_text() == "of another job\n"
    assert (folder / "new").read_text() == ""
    assert (folder / "other").read_text() == "12345"
    assert notes.stat().st_size == image["size"]
    assert reopened.cut_back(image, []) == []  # a restore that is begun again


def test_what_an_image_has_open_is_left_to_it(notes: Path) -> None:
    path = notes.parent / "x"
    run(notes, "add('x', '1')")
    image = reopened.of_image(notes, [Log.of(str(path))])
    assert image["logs"] == []
    run(notes, "add('x', '2')")
    assert reopened.cut_back(image, [Log.of(str(path))]) == []
    assert path.read_text() == "12"


def test_a_file_that_another_process_has_opened_before_is_cut_back_to_the_first(
    notes: Path,
) -> None:
    path = notes.parent / "x"
    path.write_text("123456789")
    notes.write_bytes(note_of(path, 3) + note_of(path, 6))
    assert reopened.cut_back({"path": str(notes), "size": 0, "logs": []}, []) == [str(path)]
    assert path.read_text() == "123"


@pytest.mark.parametrize("word", [b"", b"1 2 3", b"-1 2 3 /x", b"1 2 99999999999999999999 /x",
                                  b"1 2 9223372036854775808 /x", b"1 2 3 x", b"\xff 2 3 /x"])  # fmt: skip
def test_what_is_no_note_is_left_out(notes: Path, word: bytes) -> None:
    """Programs write them."""
    notes.write_bytes(word + b"\0" + b"1 2 3 /x\0" + b"1 2 3 /y")
    assert list(reopened.read(notes)) == [Opened(1, 2, 3, "/x")]


def test_a_link_is_not_followed_to_another_file(notes: Path, tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    mine.write_text("12"), others.write_text("345")
    notes.write_bytes(note_of(mine, 1))
    mine.unlink(), mine.symlink_to(others)
    assert reopened.cut_back({"path": str(notes), "size": 0, "logs": []}, []) == []
    assert others.read_text() == "345"


@pytest.mark.parametrize("change", [{"path": "x"}, {"path": 1}, {"size": -1}, {"size": True}, {"logs": 1},
                                    {"logs": [{"path": "/x"}]}])  # fmt: skip
def test_a_note_of_another_process_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        reopened.from_note({"path": "/x", "size": 0, "logs": []} | change)
