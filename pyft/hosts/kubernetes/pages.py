"""Decisions in ConfigMaps, the pages of a log: each is written only as the next version of the last one.

    page 0: by, decisions 0 to 212, closed    page 1: by, decisions 213 to …

A head that was elected first puts its number (`by`) on the last page. From then on no request of an
earlier head has any effect: it is for a version that is not there any more. A page that is full is closed
before the next one is made, so that an earlier head cannot make that unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyft.hosts.head.elected import ANOTHER, Refused
from pyft.hosts.kubernetes.api import CONFIG_MAPS, Conflict, Found, Store

PAGE_BYTES = 128 << 10  # of decisions, after which the next page is begun
LARGEST = 900 << 10  # of a decision: Kubernetes takes 1 MiB in all
BY, CLOSED = "by", "closed"
_DIGITS = 12  # of a decision's number


class Superseded(Exception):
    """Another head has been elected since."""


@dataclass
class Page:
    """One ConfigMap, as it was read or written last; `found` None: it is not there."""

    number: int
    found: Found | None

    @property
    def data(self) -> dict[str, str]:
        """Return what it has."""
        return self.found.content if self.found else {}

    @property
    def by(self) -> int:
        """Return the number of the head that has it; raise Refused."""
        text = self.data.get(BY, "0")
        if not text.isdecimal() or len(text) > _DIGITS:
            raise Refused(f"page [{self.number}] of the ledger is that of [{text:.40}]")
        return int(text)

    def decisions(self) -> Iterator[tuple[str, str]]:
        """Yield its decisions, in their order."""
        yield from sorted(one for one in self.data.items() if one[0] not in (BY, CLOSED))

    def size(self) -> int:
        """Return how many bytes the decisions have."""
        return sum(len(key) + len(value) for key, value in self.decisions())


class Pages:
    """The log of one job. For one thread. `name`: of its Lease."""

    def __init__(self, store: Store, name: str, ask_s: float) -> None:
        self._store, self._name, self._ask_s = store, name, ask_s
        self._page = Page(0, None)
        self._taken_by = 0  # the head that may write here

    def newest(self) -> int:
        """Return the number of the last head that has taken them, 0 if none has."""
        return max(page.by for page in self.all())

    def all(self) -> list[Page]:
        """Read all pages; the last one may not be there."""
        pages = [self._read(0)]
        while CLOSED in pages[-1].data:
            pages.append(self._read(len(pages)))
        self._page = pages[-1]
        return pages

    def take(self, by: int) -> list[Page]:
        """Put a head's number on the last page; return all. Raise Superseded, Unanswered, Refused."""
        self._taken_by = 0
        while True:
            pages = self.all()
            before = max(page.by for page in pages)
            if before > by:
                raise Superseded(ANOTHER)
            if not (self._page.found and self._page.by == by):
                try:
                    self._put(self._page.data | {BY: str(by)})
                except Conflict:
                    continue  # it has been written to meanwhile
                pages[-1] = self._page
            self._taken_by = by
            return pages

    def add(self, number: int, value: str, by: int) -> None:
        """Write a decision. Unanswered: it is not known whether it was, and has to be asked again.

        Raise Superseded, Unanswered, Refused.
        """
        if self._taken_by != by:
            raise Superseded(ANOTHER)
        if len(value) > LARGEST:
            most = f"Kubernetes takes [{LARGEST}] bytes of one"
            raise Refused(f"a decision has [{len(value)}] bytes, and {most}")
        key = self.key_of(number)
        if key not in self._page.data and self._is_full(len(value)):
            self._change(self._page.data | {CLOSED: "yes"})
        if CLOSED in self._page.data:
            self._page = Page(self._page.number + 1, None)
        data = self._page.data | {BY: str(by), key: value}
        self._change(data)

    @staticmethod
    def key_of(number: int) -> str:
        """Return the key of a decision."""
        return f"{number:0{_DIGITS}d}"

    def _is_full(self, more: int) -> bool:
        size = self._page.size()
        return bool(size) and size + more > PAGE_BYTES

    def _change(self, data: dict[str, str]) -> None:
        """Write a page, or find that it was written so before, by a request without an answer."""
        while True:
            before = self._page
            try:
                return self._put(data)
            except Conflict:
                self._page = self._read(before.number)
            if self._page.data == data:
                return None
            if not before.found or self._page.data != before.data:
                self._taken_by = 0
                raise Superseded(ANOTHER)  # else only its metadata is another's

    def _put(self, data: dict[str, Any]) -> None:
        page = self._page
        name = self._name_of(page.number)
        if page.found is None:
            found = self._store.create(CONFIG_MAPS, name, data, self._ask_s)
        else:
            found = self._store.update(CONFIG_MAPS, name, page.found, data, self._ask_s)
        self._page = Page(page.number, found)

    def _read(self, number: int) -> Page:
        found = self._store.read(CONFIG_MAPS, self._name_of(number), self._ask_s)
        if found and not all(isinstance(value, str) for value in found.content.values()):
            raise Refused(f"page [{number}] of the ledger has no texts")
        return Page(number, found)

    def _name_of(self, number: int) -> str:
        return f"{self._name}-{number:06d}"
