"""What flushing into several folders costs, and how likely its lines survive. Without input or output."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyft.flush.manifest import CELL
from pyft.flush.writer import KEPT


@dataclass(frozen=True)
class Cost:
    """Of lines of so many bytes, each `every` seconds, in `folders` of which `parity` may be lost."""

    line: int
    every: float
    folders: int
    parity: int

    @property
    def factor(self) -> float:
        """Return the bytes on disk for each byte of a line."""
        return self.folders / (self.folders - self.parity)

    @property
    def copies(self) -> float:
        """Return the same of copies that survive as many losses."""
        return self.parity + 1.0

    @property
    def each_folder(self) -> float:
        """Return the room that each folder needs: the lines that are kept, and the next one."""
        return (KEPT + 1) * self.line / (self.folders - self.parity)

    @property
    def traffic(self) -> float:
        """Return the bytes that are written in a second, in all folders."""
        return self.factor * self.line / self.every

    @property
    def memory(self) -> int:
        """Return the bytes of memory that a flush needs: a stripe."""
        return self.folders * CELL

    def loss(self, failed: float) -> float:
        """Return how likely a line is lost when each folder has failed with this probability.

        One less that is its survival; REFT's equation (5) is that of parity 1.
        """
        return sum(
            math.comb(self.folders, lost) * failed**lost * (1.0 - failed) ** (self.folders - lost)
            for lost in range(self.parity + 1, self.folders + 1)
        )


def failed_by(hours: float, mean: float, shape: float = 1.0) -> float:
    """Return how likely something has failed by then: Weibull's law with this mean; 1: exponential."""
    scale = mean / math.gamma(1.0 + 1.0 / shape)
    return -math.expm1(-((hours / scale) ** shape))
