"""Ranks as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyft.flexccl.communicator import Communicator

T = TypeVar("T")


def run_ranks(comms: Sequence[Communicator], body: Callable[[Communicator], T]) -> list[T]:
    """Call body(comm) in a thread per communicator and return the results in their order.

    When one raises, all communicators are aborted, so that no rank waits for it, and the error that
    came first is raised.
    """
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = body(comms[index])
        except BaseException as error:
            errors.append(error)
            for comm in comms:
                comm.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[i] for i in range(len(comms))]
