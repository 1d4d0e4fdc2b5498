"""Named points at which `PYFT_FAULT=name:n` kills this process, as proxy/ring/fault.cc does in others.

The first agent of a job only: the next ones do not get the variable.
"""

from __future__ import annotations

import os
import signal

from pyft import config

VARIABLE = "PYFT_FAULT"
NOTES = "PYFT_FAULT_NOTES"  # the file that says what has happened: it outlives this process
_text = config.get_str(VARIABLE)
_name, _colon, _number = _text.partition(":")
# What is no number is refused before anything starts (pyft.recovery.inject).
_left = {} if _colon and not _number.isdecimal() else {_name: int(_number or 1)}


def point(name: str) -> None:
    """Die here, if that is asked for and this is the n-th time."""
    if name in _left:
        _left[name] -= 1
        if _left[name] == 0:
            _note_down()
            os.kill(os.getpid(), signal.SIGKILL)


def _note_down() -> None:
    if not (path := config.get_str(NOTES)):
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(file, f"happened {VARIABLE}={_text}\n".encode())
    os.close(file)
