"""Intervals of ratios of pairs: Student t below 20 pairs, BCa bootstrap from there on.

Bootstrap intervals of 95 % cover 72 to 85 % at 3 to 8 pairs; those of t cover what they say.
The bootstrap asks for a wider level than it is to cover (Hesterberg, 2015: the quantile of t, and
n instead of n - 1), as plain BCa covers 92 % at 20. tests/unit/lab/test_statistics.py measures it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pyft_lab.errors import SpecError

BOOTSTRAP_FROM = 20
RESAMPLES = 999


@dataclass(frozen=True)
class Ratio:
    """The typical ratio of two quantities (exp of the mean log), and its interval."""

    ratio: float
    low: float
    high: float
    pairs: int
    method: str


def bounds(logs: NDArray[np.float64], level: float, seed: int) -> tuple[NDArray, NDArray]:
    """Return the interval of the mean along the last axis."""
    pairs = logs.shape[-1]
    if pairs < BOOTSTRAP_FROM:
        error = logs.std(axis=-1, ddof=1) / np.sqrt(pairs)
        half = float(stats.t.ppf((1 + level) / 2, pairs - 1)) * error
        return logs.mean(axis=-1) - half, logs.mean(axis=-1) + half
    quantile = stats.t.ppf((1 + level) / 2, pairs - 1) * np.sqrt(pairs / (pairs - 1))
    wider = float(2 * stats.norm.cdf(quantile) - 1)
    found = stats.bootstrap(
        (logs,), np.mean, axis=-1, confidence_level=wider, n_resamples=RESAMPLES, batch=100,
        method="BCa", rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return found.low, found.high


def ratio_of_pairs(of: ArrayLike, to: ArrayLike, level: float = 0.95, seed: int = 0) -> Ratio:
    """Compare neighbours: `of[i]` and `to[i]` were measured under the same conditions."""
    over, under = np.asarray(of, float), np.asarray(to, float)
    if over.shape != under.shape or over.ndim != 1 or len(over) < 2:
        raise SpecError(f"[{over.size}] and [{under.size}] values are not two pairs or more")
    if (over <= 0).any() or (under <= 0).any():
        raise SpecError("ratios need values above 0")
    logs = np.log(over / under)
    method = "t" if len(logs) < BOOTSTRAP_FROM else "BCa"
    if np.ptp(logs) == 0:  # BCa has no answer to no spread at all
        low = high = logs[0]
    else:
        low, high = bounds(logs, level, seed)
    ratio, low, high = (float(np.exp(value)) for value in (logs.mean(), low, high))
    return Ratio(ratio, low, high, len(logs), method)
