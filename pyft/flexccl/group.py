"""Groups: calls that are begun together, as between ncclGroupStart and ncclGroupEnd."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyft._native import flexccl as native
from pyft.flexccl.settings import check

if TYPE_CHECKING:
    from pyft.flexccl.communicator import Communicator


class _Open(threading.local):
    """The groups of this thread: how deep it is inside, which communicators use which memory."""

    def __init__(self) -> None:
        self.depth = 0
        self.used: dict[Communicator, list[Any]] = {}


_open = _Open()


def joins_group(comm: Communicator, owners: list[Any]) -> bool:
    """Say whether a call belongs to a group of this thread, which then keeps `owners` alive."""
    if _open.depth:
        _open.used.setdefault(comm, []).extend(owners)
    return _open.depth > 0


@contextmanager
def group(wait: bool = True) -> Iterator[None]:
    """Begin all calls of the block together, at its end; needed to drive several ranks from one thread.

    Per communicator, collectives run first, in order, then all sends and receives at once. The end
    waits for the results unless `wait` is false. Groups may be nested: the outermost one counts. When
    the block raises, nothing of the group is begun. Raises FlexcclError as the calls would.
    """
    check(native.call("ncclGroupStart"))
    _open.depth += 1
    try:
        yield
    except BaseException:
        native.call("ncclCommCount", None, None)  # a group with a refused call begins nothing
        raise
    finally:
        _open.depth -= 1
        code = native.call("ncclGroupEnd")
        if not _open.depth:
            used, _open.used = _open.used, {}
    check(code)
    if _open.depth:
        return
    for comm, owners in used.items():
        comm.keep(*owners)
    for comm in used if wait else ():
        comm.synchronize()
