"""What meta.json has to look like for those that read it: an editor, or a full disk, can damage it.

Fields that no reader relies on may be anything, and so may those of other versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

LARGEST = 1 << 64  # a client can write any number of this size into its page
LATEST = 1e11  # seconds since 1970, for which there still is a date

Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _is_integer(value: Any) -> bool:
    return type(value) is int and -LARGEST < value < LARGEST


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value < LATEST


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_texts(value: Any) -> bool:
    return _is_list(value) and all(map(_is_text, value))


def _are_numbers(value: Any) -> bool:
    return _is_object(value) and all(map(_is_number, value.values()))


def _or_nothing(check: Check) -> Check:
    return lambda value: value is None or check(value)


_WHO = {"name": _is_text, "rank": _is_integer, "pid": _is_integer, "device": _is_integer}
_OF_SERVER = {"server_pid": _is_integer, "log_fd": _is_integer, "control_fd": _is_integer}
# By the place of an object: the fields that it has to have, and those that it may leave out.
_TOP: dict[str, Check] = {
    "job": _is_text, "command": _are_texts, "gpus": _is_text, "spares": _is_integer,
    "state": _is_text, "started": _is_time, "ended": _or_nothing(_is_time),
    "supervisor_pid": _is_integer, "agent_pid": _is_integer,
    "channels": _is_list, "live": _is_list, "recovery": _or_nothing(_is_object),
    "boot_id": _is_text, "pid_namespace": _is_integer,
    "supervisor_started": _or_nothing(_is_integer), "written": _is_time, "spares_left": _is_integer,
    "pre_dumps": _is_text,
}  # fmt: skip
_SAVED = {
    **{
        "id": _is_integer,
        "process": _is_integer,
        "memory": _is_text,
        "file": _or_nothing(_is_text),
    },
    **{"calls": _are_numbers, "store": _is_object},
}
_RECOVERY: dict[str, Check] = {
    "faults": _is_list, "earlier": _is_list, "recovered": _is_integer, "agent_restarts": _is_integer,
    "goodput": _is_number, "lost_seconds": _is_number, "seconds": _is_time, "verdict": _is_text,
    "own_errors": _is_integer, "not_injected": _is_list, "corruptions": _is_list, "strikes": _is_list,
    "corruptions_earlier": _is_integer, "came_again": _is_integer,
}  # fmt: skip
_FAULT: dict[str, Check] = {
    "rank": _is_integer, "fault": _is_text, "evidence": _is_text, "outcome": _is_text,
    "verdict": _is_text, "began": _is_time, "noticed": _is_time, "ended": _is_time,
    "total_ms": _is_number, "phases_ms": _are_numbers, "gpu_from": _is_integer,
    "gpu_to": _is_integer, "epoch_from": _is_integer, "epoch_to": _is_integer,
    "restored_bytes": _is_integer, "replayed_entries": _is_integer,
}  # fmt: skip
_EARLIER: dict[str, Check] = {
    "fault": _is_text, "rank": _is_integer, "count": _is_integer, "own_errors": _is_integer,
}  # fmt: skip
_FAULT_SINCE: dict[str, Check] = {
    "own_error": lambda value: value in (0, 1), "waits_since": _is_time, "device": _is_integer,
}  # fmt: skip
_STRIKE: dict[str, Check] = {"gpu": _is_integer, "steps": _is_list, "left": lambda v: v in (0, 1)}
_NOT_INJECTED = {"fault": _is_text, "why": _is_text}


def damage(meta: Any) -> str:
    """Return what is wrong with a meta.json, empty when all can be read that is read."""
    return next(_damages(meta), "")


def _damages(meta: Any) -> Iterator[str]:
    if not _is_object(meta):
        yield "it is no JSON object"
        return
    yield from _of("", meta, {}, _TOP)
    yield from _each("channels", meta.get("channels", []), {}, _WHO | _SAVED)
    yield from _each("live", meta.get("live", []), _WHO | _OF_SERVER, _SAVED)
    recovery = meta.get("recovery") or {}
    yield from _of("recovery.", recovery, {}, _RECOVERY)
    yield from _each("recovery.faults", recovery.get("faults", []), _FAULT, _FAULT_SINCE)
    yield from _each("recovery.earlier", recovery.get("earlier", []), _EARLIER, {})
    yield from _each("recovery.not_injected", recovery.get("not_injected", []), _NOT_INJECTED, {})
    yield from _each("recovery.strikes", recovery.get("strikes", []), _STRIKE, {})
    yield from _each("recovery.corruptions", recovery.get("corruptions", []), {}, {})


def _each(
    place: str, found: list[Any], must: Mapping[str, Check], may: Mapping[str, Check]
) -> Iterator[str]:
    for index, one in enumerate(found):
        where = f"{place}[{index}]"
        if not _is_object(one):
            yield f"{where} is no object"
            return
        yield from _of(f"{where}.", one, must, may)


def _of(
    place: str, found: Mapping[str, Any], must: Mapping[str, Check], may: Mapping[str, Check]
) -> Iterator[str]:
    for name, check in (must | may).items():
        if name not in found:
            if name in must:
                yield f"{place}{name} is missing"
        elif not check(found[name]):
            yield f"{place}{name} cannot be {found[name]!r:.40}"
