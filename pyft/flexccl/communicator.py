"""Communicators: one object per rank."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyft._native import flexccl as native
from pyft.flexccl.collectives import Collectives
from pyft.flexccl.repair import Repair
from pyft.flexccl.settings import check
from pyft.flexccl.types import FlexcclError, Result


def get_unique_id() -> bytes:
    """Make the 128 bytes by which the ranks of a new communicator find each other.

    One rank makes them and sends them to the others, by whatever means. They are a secret: who has
    them may join. Raises FlexcclError when no port can be opened.
    """
    code, made = native.get_unique_id()
    check(code)
    return made


def init_all(nranks: int) -> list[Communicator]:
    """Make a communicator whose ranks all live in this process; return one object per rank.

    Drive the ranks from a thread each (`run_ranks`), or from one thread inside `group()`.
    """
    if nranks < 1:
        raise FlexcclError(f"a communicator of [{nranks}] ranks cannot be", Result.INVALID_ARGUMENT)
    code, handles = native.init_all(nranks)
    check(code)
    return [Communicator.from_handle(handle) for handle in handles]


class Communicator(Collectives, Repair):
    """One rank of a communicator; a context manager that destroys it (aborts it on an exception).

    Calls on one object come from one thread at a time; abort, async_error, state and the repair
    calls may come from another thread meanwhile.
    """

    def __init__(self, unique_id: bytes, rank: int, size: int) -> None:
        """Join as `rank` of `size`; blocks until all ranks came, at most the deadline.

        Raises FlexcclError: ranks that are missing, disagree, or have another job token.
        """
        if len(unique_id) != native.UNIQUE_ID_BYTES:
            text = f"a unique id has [{native.UNIQUE_ID_BYTES}] bytes, not [{len(unique_id)}]"
            raise FlexcclError(text, Result.INVALID_ARGUMENT)
        code, handle = native.init_rank(size, unique_id, rank)
        check(code)
        self._adopt(handle)

    def _adopt(self, handle: int | None) -> None:
        self._handle = handle
        self._buffers: list[Any] = []

    @classmethod
    def from_handle(cls, handle: int | None) -> Communicator:
        """Own the handle (ncclComm_t) of a communicator that the library made otherwise."""
        comm = cls.__new__(cls)
        comm._adopt(handle)
        return comm

    @property
    def handle(self) -> int:
        """The ncclComm_t. Raises FlexcclError when the communicator was destroyed or aborted."""
        if self._handle is None:
            raise FlexcclError("the communicator was destroyed or aborted", Result.INVALID_USAGE)
        return self._handle

    @property
    def rank(self) -> int:
        """The number of this rank: its slot."""
        return self._query("ncclCommUserRank")

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._query("ncclCommCount")

    def _query(self, name: str) -> int:
        code, value = native.get_int(name, self.handle)
        check(code)
        return value

    def async_error(self) -> FlexcclError | None:
        """Return the first error of this communicator, without waiting."""
        code = self._query("ncclCommGetAsyncError")
        return FlexcclError(native.last_sentence(self.handle), Result(code)) if code else None

    def synchronize(self) -> None:
        """Wait until everything begun so far is done, at most the deadline of each operation.

        Raises FlexcclError with the communicator's first error.
        """
        buffers, self._buffers = self._buffers, []
        try:
            check(native.call("flexcclSynchronize", self.handle), self._handle)
        finally:
            del buffers  # nothing reads or writes them any more

    def keep(self, *buffers: Any) -> None:
        """Keep arguments alive until `synchronize`."""
        self._buffers.extend(buffers)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divide the ranks by colour, ordered by (key, rank); all ranks call it.

        Returns this rank's part, None when `color` is None.
        """
        code, handle = native.split(self.handle, -1 if color is None else color, key)
        check(code, self.handle)
        return None if handle is None else Communicator.from_handle(handle)

    def shrink(self, exclude: list[int], abort: bool = False) -> Communicator:
        """Make a communicator of the others, numbered anew; local. All of them pass the same list.

        `abort`: the parent's running operations are ended first (for a parent with an error).
        """
        code, handle = native.shrink(self.handle, exclude, int(abort))
        check(code, self.handle)
        return Communicator.from_handle(handle)

    def finalize(self) -> None:
        """Wait for what was begun; later operations are refused."""
        check(native.call("ncclCommFinalize", self.handle))

    def destroy(self) -> None:
        """Wait for what was begun, then free the communicator. Twice is once."""
        self._end("ncclCommDestroy")

    def abort(self) -> None:
        """End running operations at once and free the communicator; peers get an error."""
        self._end("ncclCommAbort")

    def _end(self, name: str) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            code = native.call(name, handle)
            self._buffers = []
            check(code)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.destroy()
        else:
            self.abort()  # destroy could wait for peers that wait for this rank

    def __repr__(self) -> str:
        if self._handle is None:
            return "<Communicator, ended>"
        return f"<Communicator, rank {self.rank} of {self.size}>"
