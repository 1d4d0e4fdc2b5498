"""Writes random courses of the model of shared snapshots, for the real store and its state machine.

    shares_traces.py OUT [--traces N] [--seed S]

tests/recovery/traces_test.cc reads the lines and does with proxy/checkpoint what the model's servers
do. Whatever they say, and what lies in each store after each move, has to be the same.

    trace RANKS                     a new job
    cut ID STEP SEQ BLOCK...        a cut of an optimizer step; SEQ 0: it is left out
    copied ID                       the copies of the one in the room have been made
    told ID commit|abort STEP       by the agent
    turn ID                         the server looks what has become of the one that waits
    ask ID                          the client has no room, and another cut waits
    alone ID SEQ BLOCK...           a cut of this rank alone
    exited ID SEQ                   another server takes over; the ranks have agreed on this entry
    says ID WHAT STEP               behind one of these: what the server tells the agent
    agreed ID SEQ                   a server of it that started now would begin with this entry's
    state ID current STEP SEQ BLOCK... waiting STEP SEQ BLOCK... lent CONTENT...

A block is ADDRESS=CONTENT/OWNER, without an owner if the store has it itself.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).parent))

from model_shares import Point, SharesWorld  # noqa: E402

from pyft.recovery.shares import Commit  # noqa: E402

# Ranks, cuts, kills, forced cuts, deaths of agents; a trace has each of these at random.
SHAPES = ((2, 4, 1, 1, 0), (2, 5, 2, 2, 1), (3, 3, 1, 1, 1), (2, 6, 0, 2, 0), (3, 4, 2, 0, 0))
LONGEST = 400  # moves
TOLD = {"staged": "staged", "prepared": "prepared", "decision-request": "asks"}


def content(digest: bytes) -> str:
    """Return a content's name as one word."""
    return digest.decode().replace(" at step ", "@").replace(" of rank ", "#")


def blocks(point: Point) -> list[str]:
    """Return all blocks of a snapshot, by address."""
    found = {key: f"{content(digest)}/" for key, digest in point.own.items()}
    found |= {key: f"{content(one)}/{owner}" for key, (owner, one) in point.names.items()}
    return [f"{key[0]}={text}" for key, text in sorted(found.items())]


class Traced(SharesWorld):
    """Writes down what each server does."""

    def __init__(self, *shape: int) -> None:
        self.lines = [f"trace {shape[0]}"]
        self.agreed: dict[int, int] = {}
        super().__init__(*shape)

    def note(self, *words: object) -> None:
        """Add a line."""
        self.lines.append(" ".join(map(str, words)))

    def do(self, move: tuple[str, int]) -> None:
        kind, id = move
        before = len(self.servers[id].outbox)
        super().do(move)
        for row in json.loads(self.kept)["ranks"]:
            if self.agreed.get(row[0], 0) != row[3]:
                self.agreed[row[0]] = row[3]
                self.note("agreed", row[0], row[3])
        if kind in ("hear", "die", "kill"):
            return  # nothing that a store sees
        for what, step, number in self.servers[id].outbox[before if kind != "exited" else 0 :]:
            self.note("says", id, "passed" if (what, number) == ("staged", 0) else TOLD[what], step)
        store = self.stores[id]
        waiting = store.waiting or Point(0, 0, 0, {}, {})
        current = store.current
        lent = sorted(content(digest) for digest in store.lent.values())
        self.note(
            *("state", id, "current", current.step, current.seq, *blocks(current)),
            *("waiting", waiting.step, waiting.seq, *blocks(waiting), "lent", *lent),
        )

    def turn(self, id: int) -> None:
        self.note("turn", id)
        super().turn(id)

    def cut(self, id: int) -> None:
        step = self.servers[id].next
        super().cut(id)
        waiting = self.stores[id].waiting
        taken = waiting if waiting and waiting.step == step else None
        self.note("cut", id, step, taken.seq if taken else 0, *(blocks(taken) if taken else ()))

    def copied(self, id: int) -> None:
        self.note("copied", id)
        super().copied(id)

    def force(self, id: int) -> None:
        if self.stores[id].waiting:
            self.note("ask", id)
        super().force(id)

    def snapshot_alone(self, id: int) -> None:
        super().snapshot_alone(id)
        current = self.stores[id].current
        self.note("alone", id, current.seq, *blocks(current))

    def told(self, id: int) -> None:
        outcome = self.servers[id].inbox[0]
        word = "commit" if isinstance(outcome, Commit) else "abort"
        self.note("told", id, word, outcome.step)
        super().told(id)

    def exited(self, id: int) -> None:
        super().exited(id)
        self.note("exited", id, self.shares.entry(id))


def course(dice: random.Random) -> list[str]:
    """Return the lines of one job, until nothing can happen in it."""
    world = Traced(*dice.choice(SHAPES))
    for _ in range(LONGEST):
        steps = list(world.next_steps())
        if not steps:
            break
        world.do(dice.choice(steps))
    return world.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--traces", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    lines = [line for _ in range(asked.traces) for line in course(dice)]
    asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
