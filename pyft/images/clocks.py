"""The clocks of what is restored go on from its image: deadlines are times of the host it was on."""

from __future__ import annotations

from collections.abc import Mapping

from pyft._native import linux
from pyft.errors import UsageError

NEAR_NS = 30 * 10**9  # between clocks that may stay as they are


def are_clocks(said: object) -> bool:
    """Say whether this, of another host, can be what its clocks said."""
    return isinstance(said, dict) and all(type(said.get(name)) is int for name in linux.clocks())


def go_on(wanted: Mapping[str, int]) -> None:
    """Give this process of one thread, and all that it starts, clocks that go on from there.

    `wanted`: nanoseconds by name, as `linux.clocks` returns them. Raise UsageError where it can
    have no others, and its own ones are far from these.
    """
    try:
        linux.set_clocks(wanted)
    except OSError as error:
        if any(abs(wanted[name] - now) > NEAR_NS for name, now in linux.clocks().items()):
            raise UsageError(
                "the clocks of this host are not those of the job, and it can have no others (time "
                f"namespace): {error.strerror}"
            ) from None
