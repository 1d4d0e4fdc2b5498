"""pyft with an audit: a spare GPU does again what each rank has done, before a snapshot counts.

So it sees what no error tells of. What the script was told meanwhile is not unsaid: the losses of
those steps may be others, the parameters are not. What comes after the last snapshot but one has no
audit, so a fault there is not seen: `schedule = { at = … }` keeps it away from the end.
"""

from __future__ import annotations

from pyft_lab.mechanisms.pyft import OF_A_GPU, Snapshot


class Dmr(Snapshot):
    """Each step is done again and compared; what differs is undone."""

    name = "pyft-dmr"
    survives = (*OF_A_GPU, "bitflip")
    options = ("--dmr", "audit")
    # A snapshot each so many steps waits for the audit of the one before it.
    environment = {"PYFT_CUT_EVERY": "{interval}", "PYFT_AUDIT_WAIT_S": "60"}
    told_before = True
    most_faults = 1  # what the first repair leaves wrong is wrong
