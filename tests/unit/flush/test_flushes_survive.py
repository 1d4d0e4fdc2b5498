"""Whatever is lost with the power, the last line that was durable, or a newer one, is taken."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from crashes import CrashError, ModelDisk, make
from drawn_lines import DrawnLines

from pyft.flush import manifest, reader
from pyft.flush.manifest import DamagedError, FlushError
from pyft.flush.writer import KEPT, Stopped, Writer
from pyft.images import memory

DRAWN = DrawnLines(4, 5)
write, contents = DRAWN.write, DRAWN.contents
LINES = 4


def taken(folder: Path, into: Path) -> int:
    return DRAWN.taken([folder], into)


def write_all(root: Path, disk: ModelDisk) -> int:
    """Write all lines, or until the power goes; return the last one that was durable."""
    writer, durable = Writer([root], 0, [], disk), 0
    with contextlib.suppress(CrashError):
        for number in range(1, LINES + 1):
            write(writer, number)
            durable = number
    return durable


def operations(root: Path) -> int:
    disk = ModelDisk(root)
    assert write_all(root, disk) == LINES
    return disk.operations


def test_after_a_crash_at_any_operation_nothing_durable_is_lost(tmp_path: Path) -> None:
    """Each operation of four flushes, and each state that a crash before it can leave."""
    root, states = tmp_path / "flush", 0
    for crash_at in range(operations(root) + 1):
        disk = ModelDisk(root, crash_at)
        durable = write_all(root, disk)
        for state in disk.states():
            states += 1
            root.mkdir(mode=0o700)
            make(state, root)
            found = taken(root, tmp_path / "images")
            shutil.rmtree(root)
            assert found >= durable, f"operation {crash_at}: line {found} of {durable}: {state}"
    assert states > 200


def test_after_a_crash_the_next_writer_goes_on(tmp_path: Path) -> None:
    """With what it finds, and without the number that was being written."""
    root = tmp_path / "flush"
    for crash_at in range(operations(root)):
        disk = ModelDisk(root, crash_at)
        durable = write_all(root, disk)
        for at, state in enumerate(disk.states()):
            if at % 7:
                continue
            root.mkdir(mode=0o700)
            make(state, root)
            before = taken(root, tmp_path / "images")
            write(Writer([root], 0, [n for n in [before] if n]), LINES + 1)
            assert taken(root, tmp_path / "images") == LINES + 1
            assert before >= durable
            names = {manifest.name_of(n) for n in (before, LINES + 1) if n}
            assert set(os.listdir(root)) == names
            shutil.rmtree(root)


def test_a_full_disk_costs_the_line_that_is_written_only(tmp_path: Path) -> None:
    """At each operation; the next line is written as ever."""
    root, failures = tmp_path / "flush", 0
    for full_at in range(operations(root)):
        disk = ModelDisk(root, full_at=full_at)
        writer, good = Writer([root], 0, [], disk), 0
        for number in range(1, LINES + 1):
            try:
                write(writer, number)
                good = number
                continue
            except OSError:
                failures += 1
            for state in disk.states():
                root.mkdir(mode=0o700)
                make(state, root)
                assert taken(root, tmp_path / "images") >= good
                shutil.rmtree(root)
        assert good >= LINES - 1
    assert failures > operations(root) // 2


TMPFS = """
import os, sys
from pathlib import Path
from pyft.flush.writer import Writer
from pyft.images.contents import Contents
root, writer = Path(sys.argv[1]), Writer([Path(sys.argv[1])], 0, [])
for number, mebibytes in ((1, 1), (2, 4), (3, 1)):
    about = {"step": 1, "contents": Contents([("a", mebibytes << 20)], []).note(), "image": {}}
    try:
        writer.write(number, about, [bytes(mebibytes << 20)])
    except OSError as error:
        print(error.strerror)
    print(sorted(os.listdir(root)))
"""


def test_a_small_disk_is_full(tmp_path: Path, need: Callable[[str, bool, str], None]) -> None:
    """One in memory, mounted where only the test sees it."""
    able = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    need("nodes", able, "no mount namespaces")
    mount = 'mount -t tmpfs -o size=3m,mode=700 none "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, TMPFS]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.stdout.splitlines() == [
        "['line-1']",
        "No space left on device",
        "['line-1']",
        "['line-1', 'line-3']",
    ], done.stderr


@pytest.fixture
def flushed(tmp_path: Path) -> Path:
    """Return a folder with two lines."""
    root = tmp_path / "flush"
    root.mkdir(mode=0o700)
    writer = Writer([root], 0, [])
    for number in (1, 2, 3):
        write(writer, number)
    assert manifest.lines_in([root]) == [3, 2]
    return root


def flips(path: Path) -> Iterator[None]:
    """Flip a bit of each byte of a file, one after the other."""
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        yield
    path.write_bytes(data)


def cuts(path: Path) -> Iterator[None]:
    """Cut a file at each place."""
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        yield
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [flips, cuts])
@pytest.mark.parametrize("name", [manifest.DATA, manifest.MANIFEST])
def test_a_damaged_line_is_named_and_the_older_one_is_taken(
    flushed: Path, tmp_path: Path, damage: object, name: str
) -> None:
    for _ in damage(flushed / "line-3" / name):  # type: ignore[operator]
        loaded = reader.newest([flushed], tmp_path / "images")
        assert loaded.manifest.number == 2
        assert list(loaded.refused) == [3]
        assert "differs" in loaded.refused[3] or "the data end" in loaded.refused[3]
        loaded.drop()
        assert not list((tmp_path / "images").iterdir())
    assert taken(flushed, tmp_path / "images") == 3


def test_without_a_whole_line_each_is_named(flushed: Path, tmp_path: Path) -> None:
    for number in (2, 3):
        (flushed / f"line-{number}" / manifest.DATA).unlink()
    with pytest.raises(FlushError, match=r"line \[3\]: .*; line \[2\]: "):
        reader.newest([flushed], tmp_path / "images")


@pytest.mark.parametrize("lacks", ["memory", "disk", "descriptors"])
def test_what_this_host_lacks_now_gives_up_no_line(
    flushed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Else the newest line, which is whole, would be set aside, and removed by the next flush."""

    def fails(*_: object) -> NoReturn:
        why = errno.ENOSPC if lacks == "disk" else errno.EMFILE
        raise OSError(why, os.strerror(why))

    with monkeypatch.context() as now:
        if lacks == "memory":
            now.setattr(memory, "available", lambda: reader.LEAST_FREE - 1)
        elif lacks == "disk":
            now.setattr(os, "pwrite", fails)
        else:
            now.setattr(reader, "_read_into", fails)
        with pytest.raises(FlushError, match=r"no line is changed"):
            reader.newest([flushed], tmp_path / "images")
    assert taken(flushed, tmp_path / "images") == 3


def test_a_line_under_another_name_is_refused(flushed: Path, tmp_path: Path) -> None:
    """As who copies folders by hand may leave them."""
    (flushed / "line-3").rename(flushed / "line-7")
    with pytest.raises(DamagedError, match=r"says that it is line \[3\]"):
        reader.load([flushed], 7, tmp_path / "images")
    assert taken(flushed, tmp_path / "images") == 2


def test_a_folder_into_which_others_write_is_refused(flushed: Path, tmp_path: Path) -> None:
    flushed.chmod(0o770)
    with pytest.raises(FlushError, match="other users"):
        reader.newest([flushed], tmp_path / "images")


def test_the_job_ends_while_a_line_is_written(flushed: Path, tmp_path: Path) -> None:
    """Nothing is left of it, and the ones before stay."""

    def stream() -> Iterator[bytes]:
        yield b"1234"
        raise Stopped

    with pytest.raises(Stopped):
        Writer([flushed], 0, [2, 3]).write(4, contents(4)[0], stream())
    assert sorted(os.listdir(flushed)) == ["line-2", "line-3"]
    assert taken(flushed, tmp_path / "images") == 3


def test_numbers_that_were_begun_are_seen(flushed: Path) -> None:
    """They are not used again."""
    (flushed / "line-9.partial").mkdir()
    assert manifest.last_number([flushed]) == 9
    (flushed / "line-11.refused").mkdir()
    assert manifest.last_number([flushed]) == 11
    assert manifest.lines_in([flushed]) == [3, 2]
    assert KEPT == 2
