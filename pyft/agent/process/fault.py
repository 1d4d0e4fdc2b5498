"""Named points at which `PYFT_FAULT=name:n` kills this process, as proxy/ring/fault.cc does in others.

The first agent of a job only: the next ones do not get the variable.
"""

from __future__ import annotations

import os
import signal

from pyft import config

VARIABLE = "PYFT_FAULT"
_name, _, _number = config.get_str(VARIABLE).partition(":")
_left = {_name: int(_number)} if _number.isdecimal() else {}


def point(name: str) -> None:
    """Die here, if that is asked for and this is the n-th time."""
    if name in _left:
        _left[name] -= 1
        if _left[name] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
