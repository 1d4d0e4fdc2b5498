"""Named points at which `PYFT_FAULT=name:n` kills this process, as proxy/ring/fault.cc does in others.

The first agent of a job only: the next ones do not get the variable.
"""

from __future__ import annotations

import os
import signal

from pyft import config

VARIABLE = "PYFT_FAULT"
_name, _colon, _number = config.get_str(VARIABLE).partition(":")
# What is no number is refused before anything starts (pyft.recovery.inject).
_left = {} if _colon and not _number.isdecimal() else {_name: int(_number or 1)}


def point(name: str) -> None:
    """Die here, if that is asked for and this is the n-th time."""
    if name in _left:
        _left[name] -= 1
        if _left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
