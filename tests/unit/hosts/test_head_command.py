"""`pyft head` names what it cannot use, and blames nothing else for what fails later."""

from __future__ import annotations

import errno
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyft.cli import several
from pyft.errors import PyftError, UsageError


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PYFT_TOKEN", "ab" * 32)
    with socket.create_server(("127.0.0.1", 0)) as free:
        name = f"127.0.0.1:{free.getsockname()[1]}"
    yield name
    gc.collect()  # a command that fails ends with its process, which closes its listener


def start(listen: str, ledger: str = "", every: float = 0.0, mttf: float = 0.0) -> None:
    more = (several.LEASE_S, every, 1, None, mttf)
    several.head(1, listen, ledger, *more)


def test_an_address_that_is_taken_is_named(where: str) -> None:
    host, _, port = where.partition(":")
    refused = pytest.raises(UsageError, match=rf"\[{where}\] cannot be used")
    with socket.create_server((host, int(port))), refused:
        start(where)


def test_a_ledger_that_cannot_be_opened_is_named(where: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"\[{tmp_path}\] cannot be used"):
        start(where, str(tmp_path))


def test_images_have_one_reason_for_their_interval(where: str) -> None:
    with pytest.raises(UsageError, match="--image-every and --mttf"):
        start(where, every=10.0, mttf=100.0)


def test_hours_until_a_host_is_lost_are_known_to_the_head_in_seconds(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    found: list[float] = []

    def run(head: several.Head) -> int:
        found.append(head._coordinator.mttf_s)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(several.Head, "run", run)
    with pytest.raises(PyftError, match="cannot go on"):
        start(where, mttf=1.5)
    assert found == [5400.0]


def test_what_fails_while_it_decides_is_not_blamed_on_its_address(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def run(_: several.Head) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(several.Head, "run", run)
    with pytest.raises(PyftError, match="cannot go on.*Too many open files") as failed:
        start(where)
    assert not isinstance(failed.value, UsageError)
    assert where not in str(failed.value)
