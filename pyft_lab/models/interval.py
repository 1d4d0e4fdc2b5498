"""How much work to do between two checkpoints. All values of one call have the same unit."""

from __future__ import annotations

import math

from scipy.special import lambertw

from pyft_lab.errors import OutOfRangeError


def young(stall: float, mtbf: float) -> float:
    """Return Young's interval (1974), which wants a stall that is short against the MTBF."""
    return math.sqrt(2 * stall * mtbf)


def daly(stall: float, mtbf: float) -> float:
    """Return Daly's interval (2006): within 0.7 % of the exact one up to stall / mtbf = 0.56."""
    if stall >= 2 * mtbf:
        return mtbf
    part = stall / (2 * mtbf)
    return math.sqrt(2 * stall * mtbf) * (1 + math.sqrt(part) / 3 + part / 9) - stall


def exact(stall: float, mtbf: float) -> float:
    """Return the interval at which the exact goodput is largest; recovery has no part in it."""
    if stall <= 0 or mtbf <= 0:
        raise OutOfRangeError(f"stall [{stall}] and mtbf [{mtbf}] must be above 0")
    return mtbf * (1 + float(lambertw(-math.exp(-stall / mtbf - 1)).real))
