"""What these tests cannot do without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import vendor


@pytest.fixture(autouse=True)
def _disassemblers() -> None:
    try:
        vendor.decode_dump()
        vendor.nvdisasm()
    except vendor.Missing as missing:
        pytest.skip(f"[nvdisasm]: {missing}")
