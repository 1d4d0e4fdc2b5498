"""What the keys of `pyft top` do: each order is asked for in words, and given after a yes only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyft.errors import PyftError
from pyft.recovery.inject import KINDS, parse_order

Give = Callable[..., None]  # kind of order, its values
LONGEST = 60


@dataclass(frozen=True)
class Order:
    """An order that a key begins: what is asked first, and what the confirmation says."""

    kind: str
    asks: str
    sure: str


ORDERS = {
    "r": Order("replace", "replace which rank? ", "Put rank {} on a new server, while it waits?"),
    "d": Order("drain", "drain which GPU? ", "Move everything off GPU {} and use it no more?"),
    "s": Order("spare", "add which GPU as a spare? ", "Give GPU {} to the job?"),
    "i": Order(
        "inject",
        f"fault as KIND,rank=R ({', '.join(KINDS)}): ",
        "Let fault {} happen in this job?",
    ),
}


@dataclass
class Dialog:
    """One key after the other. `give` sends an order; PyftError says why it is refused."""

    give: Give
    done: bool = False
    answer: str = ""
    style: str = ""
    _order: Order | None = None
    _text: str = ""
    _values: dict[str, int | str] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """Return what is asked now, with what was typed; nothing when nothing is asked."""
        if self._order is None:
            return ""
        if self._values:
            return f"{self._order.sure.format(self._text)} y/n "
        return f"{self._order.asks}{self._text}_"

    def press(self, key: str) -> None:
        """Take a key."""
        if key in ("\x03", "\x04"):
            self.done = True
        elif self._order is None:
            self._begin(key)
        elif key == "\x1b":
            self._end("not done")
        elif self._values:
            self._confirm(key)
        else:
            self._type(key)

    def _begin(self, key: str) -> None:
        self.done = key in ("q", "Q")
        self._order, self._text, self.answer = ORDERS.get(key), "", ""

    def _type(self, key: str) -> None:
        assert self._order
        if key in ("\r", "\n"):
            try:
                self._values = _values(self._order.kind, self._text.strip())
            except PyftError as error:
                self._end(str(error), "bold red")
        elif key in ("\x7f", "\b"):
            self._text = self._text[:-1]
        elif key.isprintable() and len(self._text) < LONGEST:
            self._text += key

    def _confirm(self, key: str) -> None:
        assert self._order
        if key not in ("y", "Y"):
            self._end("not done")
            return
        try:
            self.give(self._order.kind, **self._values)
        except PyftError as error:
            self._end(str(error), "bold red")
        else:
            self._end(f"{self._order.kind} {self._text}: under way", "green")

    def _end(self, answer: str, style: str = "dim") -> None:
        self.answer, self.style = answer, style
        self._order, self._text, self._values = None, "", {}


def _values(kind: str, text: str) -> dict[str, int | str]:
    """Return the values of an order; PyftError says what is wrong with the text."""
    if kind == "inject":
        fault = parse_order(text)
        return {"rank": fault.rank, "fault": str(fault)}
    if not text.isdecimal() or len(text) > 6:
        raise PyftError(f"[{text}] is no number")
    return {"rank" if kind == "replace" else "gpu": int(text)}
