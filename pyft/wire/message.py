"""What all messages have in common (pyft/wire/messages.py), and how their fields travel."""

from __future__ import annotations

from typing import ClassVar

Words = tuple[int, int, int]


class Message:
    """What the messages have in common; pyft.wire.messages has them all."""

    NUMBER: ClassVar[int]
    payload: bytes = b""

    def words(self) -> Words:
        """Return the fields as they travel."""
        raise NotImplementedError

    @classmethod
    def of(cls, words: Words, payload: bytes) -> Message:
        """Return what has come."""
        raise NotImplementedError


def unsigned(number: int, bits: int = 64) -> int:
    """Return a number as it travels; -1 has all bits."""
    return number & ((1 << bits) - 1)


def signed(word: int) -> int:
    """Return the number that the lower half of a word is."""
    return (word & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
