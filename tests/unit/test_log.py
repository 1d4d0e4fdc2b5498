"""PYFT_LOG as Python takes it; C++ takes the same (tests/ring/log_test.cc)."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from pyft import config, log
from pyft.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_levels_of_all_and_of_single_modules() -> None:
    assert set(log.parse("").values()) == {logging.INFO}
    assert set(log.parse("debug").values()) == {logging.DEBUG}
    levels = log.parse("warning,recovery=trace,plan=error")
    assert (levels["recovery"], levels["plan"]) == (log.TRACE, logging.ERROR)
    assert levels["agent"] == levels["ring"] == logging.WARNING


@pytest.mark.parametrize(
    "text", ["loud", "plan=loud", "attic=debug", "plan=", "=debug", ",", "plan"]
)
def test_what_is_not_understood_is_refused_before_anything_starts(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.check({"PYFT_LOG": text})
    assert str(caught.value).startswith(f"PYFT_LOG is [{text}], not LEVEL or MODULE=LEVEL")


def test_both_languages_have_the_same_words() -> None:
    source = (ROOT / "proxy" / "ring" / "log.cc").read_text()
    for name, words in (("kLevelNames", log.LEVELS), ("kModuleNames", log.MODULES)):
        listed = re.search(rf"{name}\{{([^}}]*)\}}", source)
        assert listed
        assert re.findall(r'"([a-z]+)"', listed[1]) == list(words)


def test_lines_have_a_label_and_nothing_is_said_unasked(capfd: pytest.CaptureFixture[str]) -> None:
    log.set_up("plan=debug")
    log.logger("plan").debug("event %s", 1)
    log.logger("plan").log(log.TRACE, "not this")
    log.logger("agent").debug("nor this")
    said = capfd.readouterr().err
    assert re.fullmatch(r"pyft: \[debug plan pid \d+\] event 1\n", said)
    log.set_up("")
    log.logger("plan").warning("unasked")
    assert capfd.readouterr().err == ""
