"""Jobs with a server and a client that only speak the protocols."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from stand_ins import native, start  # noqa: E402, F401
