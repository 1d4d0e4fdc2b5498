"""The table of PYFT_* variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyft import config
from pyft.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_values_and_defaults() -> None:
    assert config.get_int("PYFT_RING_MB", {}) == 64
    assert config.get_int("PYFT_RING_MB", {"PYFT_RING_MB": "2"}) == 2
    assert config.get("PYFT_HEARTBEAT_TIMEOUT_S", {"PYFT_HEARTBEAT_TIMEOUT_S": "0.5"}) == 0.5


@pytest.mark.parametrize("text", ["many", "0", "-3", "1.5"])
def test_bad_values_name_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"PYFT_RING_MB is \[{text}\]"):
        config.get_int("PYFT_RING_MB", {"PYFT_RING_MB": text})


def test_a_bad_value_is_found_before_anything_starts() -> None:
    config.check({"PYFT_SHARE_CAPTURES": "0", "PYFT_REPLAY": "all", "PYFT_LATE_COPIES": ""})
    with pytest.raises(ConfigError, match=r"PYFT_REPLAY is \[both\], not one or all"):
        config.check({"PYFT_REPLAY": "both"})
    with pytest.raises(ConfigError, match=r"PYFT_HANG_S is \[soon\]"):
        config.check({"PYFT_HANG_S": "soon"})


def test_unknown_names_get_the_nearest() -> None:
    (sentence,) = config.warnings({"PYFT_RINGMB": "1", "PATH": "", "PYFT_RING_MB": "1"})
    assert "[PYFT_RINGMB]" in sentence
    assert "[PYFT_RING_MB]" in sentence


def test_every_variable_the_native_code_reads_is_in_the_table() -> None:
    read = set()
    for folder in ("proxy", "shim", "softgpu"):
        for path in (ROOT / folder).rglob("*.cc"):
            read |= set(re.findall(r'"(PYFT_[A-Z_]+)"', path.read_text()))
    assert read <= set(config.BY_NAME), "add it to pyft/config.py"


def test_page_is_fresh() -> None:
    page = ROOT / "docs" / "env-vars.md"
    assert page.read_text() == config.markdown(), "run: pyft env --markdown > docs/env-vars.md"
