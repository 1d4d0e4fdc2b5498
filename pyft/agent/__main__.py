"""`python pyft/agent/__main__.py …`: started by `pyft run` by path, in isolated mode.

Isolated, because `-m` and PYTHONPATH would let a `signal.py` of the user replace a module.
"""

import sys
from pathlib import Path

if not __package__:
    # Isolated mode adds no folder of ours to the path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyft.agent.agent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
