"""What the head tells the user of its decisions."""

from __future__ import annotations

from typing import Any


def told(entry: dict[str, Any]) -> str:
    """Return what the user is to know of an entry."""
    kind = entry["kind"]
    if kind == "line":
        return f"image [{entry['number']}] is the line of all: step [{entry['step']}]"
    if kind == "chosen":
        return f"host [{entry['host']}] takes place [{entry['place']}]"
    if kind == "back":
        return f"{entry['why']}: all go back to image [{entry['number']}]"
    if kind == "alone":
        return f"{entry['why']}: it is replaced alone, all others go on"
    if kind == "onward":
        told = "all have come back, and go on"
        if entry.get("drained"):
            told += f"; host [{entry['drained']}] is drained: its place [{entry['place']}] "
            told += f"is on host [{entry['to']}]"
        return told
    if kind == "drain":
        taker = f"host [{entry['to']}]" if entry.get("to") else "a spare host"
        where = f"place [{entry['place']}] goes to {taker} at the next line"
        return f"host [{entry['host']}] is to be drained: {where}"
    if kind == "undrain":
        return f"host [{entry['host']}] is not drained: {entry['why']}"
    if kind == "leave" and "happened" in entry:
        return f"host [{entry['host']}] ends place [{entry['place']}], which goes on elsewhere"
    if kind == "leave":
        return f"all stand at the line: host [{entry['host']}] ends place [{entry['place']}]"
    if kind == "unrestored":
        return f"host [{entry['host']}] cannot restore place [{entry['place']}]"
    if kind == "done":
        return f"the command of place [{entry['place']}] has ended with [{entry['code']}]"
    return f"the job ends: {entry['why']}" if kind == "failed" else ""


def copies_of(entry: dict[str, Any]) -> str:
    """Return what the copies of a line survive."""
    fewest = min(len(names) for names in entry["holders"].values())
    if not fewest:
        return "no other host has copies of images: the loss of a host ends the job"
    what = f"each place's image is on [{fewest}] other hosts or more: "
    but = f"; not [{', '.join(entry['but'])}]" if entry["but"] else ""
    return f"{what}any [{entry['survives']}] failure domains may be lost at once{but}"
