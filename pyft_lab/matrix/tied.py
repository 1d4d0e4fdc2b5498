"""Becomes a command that the kernel ends with its parent: python tied.py PARENT COMMAND...

A runner that is killed leaves no job behind, whatever the job is.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # sys/prctl.h

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it ended before that
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])
