"""The table of PYFT_* variables."""

from __future__ import annotations

import pytest

from pyft import config
from pyft.errors import ConfigError


def test_values_and_defaults() -> None:
    assert config.get_int("PYFT_RING_MB", {}) == 64
    assert config.get_int("PYFT_RING_MB", {"PYFT_RING_MB": "2"}) == 2
    assert config.get("PYFT_HEARTBEAT_TIMEOUT_S", {"PYFT_HEARTBEAT_TIMEOUT_S": "0.5"}) == 0.5


@pytest.mark.parametrize("text", ["many", "0", "-3", "1.5"])
def test_bad_values_name_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"PYFT_RING_MB is \[{text}\]"):
        config.get_int("PYFT_RING_MB", {"PYFT_RING_MB": text})


def test_a_bad_value_is_found_before_anything_starts() -> None:
    config.check({"PYFT_SHARE_SNAPSHOTS": "0", "PYFT_REPLAY": "all", "PYFT_BACKGROUND_COPIES": ""})
    with pytest.raises(ConfigError, match=r"PYFT_REPLAY is \[both\], not one or all"):
        config.check({"PYFT_REPLAY": "both"})
    with pytest.raises(ConfigError, match=r"PYFT_HANG_S is \[soon\]"):
        config.check({"PYFT_HANG_S": "soon"})


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_a_time_is_finite(text: str) -> None:
    """No silence is longer than either."""
    with pytest.raises(ConfigError, match=rf"PYFT_HEARTBEAT_TIMEOUT_S is \[{text}\]"):
        config.get("PYFT_HEARTBEAT_TIMEOUT_S", {"PYFT_HEARTBEAT_TIMEOUT_S": text})


def test_unknown_names_get_the_nearest() -> None:
    (sentence,) = config.warnings({"PYFT_RINGMB": "1", "PATH": "", "PYFT_RING_MB": "1"})
    assert "[PYFT_RINGMB]" in sentence
    assert "[PYFT_RING_MB]" in sentence


def test_numbers_without_a_default_are_checked_too() -> None:
    assert config.get("PYFT_SPIN_US", {}) == ""
    assert config.get("PYFT_SPIN_US", {"PYFT_SPIN_US": "0"}) == 0
    with pytest.raises(ConfigError, match=r"PYFT_SPIN_US is \[soon\]"):
        config.check({"PYFT_SPIN_US": "soon"})
    with pytest.raises(ConfigError, match=r"PYFT_STRICT is \[yes\], not 0 or 1"):
        config.check({"PYFT_STRICT": "yes"})


def test_an_old_name_still_sets_the_variable_and_says_so() -> None:
    environment = {"PYFT_SHARE_CAPTURES": "1"}
    (sentence,) = config.take_old_names(environment)
    assert environment == {"PYFT_SHARE_SNAPSHOTS": "1"}
    assert "[PYFT_SHARE_CAPTURES]" in sentence
    assert "[PYFT_SHARE_SNAPSHOTS]" in sentence
    assert config.take_old_names(environment) == []


def test_a_new_name_counts_before_an_old_one() -> None:
    environment = {"PYFT_SHARE_CAPTURES": "1", "PYFT_SHARE_SNAPSHOTS": "2"}
    config.take_old_names(environment)
    assert environment == {"PYFT_SHARE_SNAPSHOTS": "2"}


def test_a_setting_that_makes_replays_wrong_is_said() -> None:
    (sentence,) = config.warnings({"PYFT_IGNORE_OBSERVED": "1"})
    assert "[PYFT_IGNORE_OBSERVED] is set" in sentence
    assert "wrong" in sentence
    assert config.warnings({"PYFT_IGNORE_OBSERVED": "0"}) == []
