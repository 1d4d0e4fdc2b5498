"""What mutation tests have come to: docs/spec/mutants.json, from which tools/gen/mutants_page.py makes a page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "spec" / "mutants.json"


def known() -> dict[str, dict[str, Any]]:
    """Return the rows so far, by module or file."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def note(name: str, **row: Any) -> None:
    """Put a row down, instead of the one before."""
    load = round(os.getloadavg()[0])
    rows: Mapping[str, Any] = known() | {
        name: row | {"date": time.strftime("%Y-%m-%d", time.gmtime()), "load": load}
    }
    RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
