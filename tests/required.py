"""PYFT_REQUIRE: which skips are failures. A pytest plugin, also where there is no conftest.

`PYFT_REQUIRE=torch,nvcc` names needs that must be there; `all` means every skip, and `all,-nodes`
every one but those of a need. A skip without a need falls under `all` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from typing import Any

import pytest

VARIABLE = "PYFT_REQUIRE"
SKIPPED = 77  # what meson takes for a test that was skipped
_NEED = re.compile(r"(?:Skipped: )?\[([^\]]+)\]: ")


def refuses(reason: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether a test may not be skipped for this reason, which begins with "[its need]: "."""
    wanted = {word.strip() for word in environment.get(VARIABLE, "").split(",")}
    found = _NEED.match(reason)
    need = found[1] if found else ""
    return (need in wanted if need else False) or ("all" in wanted and f"-{need}" not in wanted)


def _judge(report: Any) -> None:
    """Make a failure of a skip that may not be."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    where = report.longrepr
    reason = where[2] if isinstance(where, tuple) else str(where)
    if refuses(reason):
        report.outcome = "failed"
        report.longrepr = f"{VARIABLE} is [{os.environ[VARIABLE]}], and this was skipped: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Of tests."""
    outcome = yield
    _judge(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    """Of whole files."""
    outcome = yield
    _judge(outcome.get_result())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell meson, which shows no output of tests that pass, that none has run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "MESON_TEST_ITERATION" not in os.environ or reporter is None:
        return
    if reporter.stats.get("skipped") and not any(map(reporter.stats.get, ("passed", "failed"))):
        session.exitstatus = SKIPPED
