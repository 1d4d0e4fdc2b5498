"""Orders to the head of a job on several hosts, and what it says of the job."""

from __future__ import annotations

import time
from typing import Any

from pyft.errors import UsageError
from pyft.hosts.wire.link import Link, LinkError, addresses_of, token

ANSWER_S = 10.0
LOOK_S = 0.3
SILENT_S = 60.0  # of the head, while a drain is waited for


def ask(head: str, order: str, **values: Any) -> dict[str, Any]:
    """Give the head an order; return how the job is. Raise UsageError where it refuses."""
    why = ""
    for where in addresses_of(head):  # of several heads the one that decides answers
        try:
            said = _answer(where, order, values)
        except LinkError as error:
            why = f"refuses: {error}; see PYFT_TOKEN"
        except OSError as error:
            why = f"cannot be reached: {error}"
        else:
            if said["kind"] != "answer":
                raise UsageError(f"the head refuses: {said.get('why')}")
            return said
    raise UsageError(f"the head at [{head}] {why}")


def _answer(where: tuple[str, int], order: str, values: dict[str, Any]) -> dict[str, Any]:
    link = Link.to(where, token())
    try:
        link.send("hello", role="operator", order=order, **values)
        said = link.receive(ANSWER_S)
    finally:
        link.close()
    if said is None:
        raise TimeoutError(f"it does not answer within [{ANSWER_S:g}] s")
    return said


def wait_for_drain(head: str, host: str) -> tuple[bool, str]:
    """Wait until a host is drained, or will not be; return whether it is, and how."""
    heard_at, told = time.monotonic(), ""
    while True:
        try:
            said = ask(head, "status")
            heard_at = time.monotonic()
        except UsageError as error:  # another head may take over
            if time.monotonic() > heard_at + SILENT_S:
                return False, str(error)
            time.sleep(LOOK_S)
            continue
        is_over = said["failed"] or said["phase"] == "over"
        if is_over or not said["drain"] or said["drain"]["host"] != host:
            done, how = said["drains"].get(host, (False, said["failed"] or "the job has ended"))
            return bool(done), str(how)
        if said["passed_why"] != told:
            told = said["passed_why"]
            if told:
                print(f"no line yet, and tried again: {told}", flush=True)
        time.sleep(LOOK_S)


def lines(said: dict[str, Any]) -> list[str]:
    """Return the text of a job's status."""
    line = said["line"]
    where = f"all can go back to step {line['step']}" if line["number"] else "no line yet"
    text = [f"head: term {said['term']}, {said['phase']}; {where}"]
    if said["failed"]:
        text.append(f"  the job ends: {said['failed']}")
    if said["passed"]:
        text.append(f"  {said['passed']} images in a row passed over: {said['passed_why']}")
    for one in said["places"]:
        lease = f", lease {one['lease_s']:g} s" if one["life"] else ""
        host = f" on host {one['host']}, life {one['life']}" if one["life"] else ""
        ranks = f", ranks {one['ranks']}" if one["ranks"] else ""
        text.append(
            f"  place {one['place']}{host}: {one['state']}, step {one['step']}{ranks}{lease}"
        )
    for one in said["spares"]:
        kept = sorted({tuple(image) for image in one["images"]})
        images = ", ".join(f"{number} of place {place}" for place, number in kept)
        text.append(f"  spare host {one['host']}: {'image ' + images if kept else 'no images'}")
    if not said["spares"]:
        text.append("  no spare host: the loss of a host ends the job")
    if drain := said["drain"]:
        where = f"at host {drain['to']}" if drain["to"] else "elsewhere"
        ended = f"has ended there, and goes on {where}"
        next_line = "leaves at the next line" + (f", for host {drain['to']}" if drain["to"] else "")
        how = ended if drain["left"] else next_line
        text.append(f"  host {drain['host']} is being drained: place {drain['place']} {how}")
    return text + fault_lines(said["faults"])


def fault_lines(faults: dict[str, Any]) -> list[str]:
    """Return what going back has cost the last times."""
    text = [f"  {faults['alone']} servers were replaced alone"] if faults["alone"] else []
    text += [f"  all went back {faults['count']} times"] if faults["count"] else []
    for one in faults["last"][-3:]:
        cost = "not over" if one["seconds"] is None else f"{one['seconds']:.1f} s"
        text.append(
            f"    {cost}, {one['repeated']} steps repeated: {one['why']}: back to step {one['step']}"
        )
    return text
