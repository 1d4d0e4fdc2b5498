"""PYFT_REQUIRE turns skips into failures, wherever they come from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import required

pytest_plugins = ["pytester"]
SKIPS = """
import pytest

pytest.importorskip("os")

@pytest.fixture
def machine():
    pytest.skip("no machine")

def test_a_fixture(machine):
    pass

def test_a_need():
    pytest.skip("[nodes]: there is one only")

@pytest.mark.skipif(True, reason="never")
def test_a_mark():
    pass

@pytest.mark.xfail
def test_an_expected_failure():
    assert False
"""
FILE = "import pytest\npytest.importorskip('there_is_no_such_module')\n"


@pytest.mark.parametrize(
    ("value", "failed"),
    [("", 0), ("nodes", 1), ("torch", 0), ("all", 3), ("all,-nodes", 2), ("all,-torch", 3)],
)
def test_skips_of_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str, failed: int
) -> None:
    monkeypatch.setenv(required.VARIABLE, value)
    pytester.makepyfile(SKIPS)
    done = pytester.runpytest_inprocess("-p", "required", "-p", "no:cacheprovider")
    seen = done.parseoutcomes()
    assert seen.get("failed", 0) + seen.get("errors", 0) == failed  # a fixture's is an error
    assert (seen.get("skipped", 0), seen["xfailed"]) == (3 - failed, 1)
    if failed:
        done.stdout.fnmatch_lines(["*, and this was skipped: *"])


@pytest.mark.parametrize("value", ["", "all"])
def test_skips_of_files(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(required.VARIABLE, value)
    pytester.makepyfile(FILE)
    done = pytester.runpytest_inprocess("-p", "required", "-p", "no:cacheprovider")
    done.assert_outcomes(errors=int(value == "all"), skipped=int(value == ""))


@pytest.mark.parametrize(("more", "code"), [("", 77), ("\ndef test_it():\n    pass\n", 0)])
def test_meson_is_told_if_nothing_ran(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, more: str, code: int
) -> None:
    monkeypatch.delenv(required.VARIABLE, raising=False)
    monkeypatch.setenv("MESON_TEST_ITERATION", "1")
    pytester.makepyfile(SKIPS.partition("@pytest.mark.xfail")[0] + more)
    assert pytester.runpytest_inprocess("-p", "required").ret == code


def test_sanitizers_may_be_required(tmp_path: Path) -> None:
    """The shell script that meson runs says the same."""
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\necho 'FATAL: ThreadSanitizer: unexpected memory mapping'\nexit 1\n"
    )
    program.chmod(0o755)
    script = Path(__file__).parent.parent / "ring/sanitize.sh"
    for value, code in (("", 77), ("nodes", 77), ("sanitizers", 1), ("all,-nodes", 1)):
        done = subprocess.run(
            [script, program], env={required.VARIABLE: value}, capture_output=True, text=True
        )
        assert done.returncode == code, value
        assert "unexpected memory mapping" in done.stdout


@pytest.mark.parametrize("user", [0, 1000])
def test_a_part_that_needs_root_may_be_required(tmp_path: Path, user: int) -> None:
    """What meson runs as another user is a test of its own."""
    script = Path(__file__).parent.parent / "as_root.sh"
    (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path / "id").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    for value, code in (("", 77), ("nodes", 77), ("all,-root", 77), ("root", 1), ("all", 1)):
        environment = {required.VARIABLE: value, "PATH": path}
        done = subprocess.run(
            [script, "sh", "-c", "exit 5"], env=environment, capture_output=True, text=True
        )
        assert done.returncode == (code if user else 5), value
        assert ("only root can become another user" in done.stdout) == bool(user)


def test_ci_leaves_nothing_out_for_root() -> None:
    """It runs as root: no test of another user may be skipped there."""
    text = (Path(__file__).parents[2] / ".ci/run").read_text().replace("\\\n", "")
    (value,) = re.findall(r"PYFT_REQUIRE:-([^}]+)}", text)
    assert required.refuses("[root]: no", {required.VARIABLE: value})
    assert required.refuses("[torch]: no", {required.VARIABLE: value})
    assert not required.refuses("[nodes]: no", {required.VARIABLE: value})
