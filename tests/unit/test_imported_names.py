"""tools/check/imported_names.py: a name that a module of this repository does not have."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "check"))

from imported_names import problems

HELPERS = """
import os
from pathlib import Path as Folder
LIMIT: int = 3
first, *others = (1, 2)
if LIMIT:
    def start(inner): ...
class Job:
    def ask(self): ...
"""


def found(source: str, **others: str) -> list[str]:
    """Return what is wrong with a test that stands beside `helpers.py`."""
    files = {"tests/helpers.py": HELPERS, "tests/test_one.py": source, **others}
    return list(problems({Path(name): ast.parse(text) for name, text in files.items()}))


def test_what_a_module_binds_can_be_imported() -> None:
    assert found("from helpers import Folder, Job, LIMIT, first, os, others, start") == []


def test_what_it_does_not_bind_is_named_with_its_line() -> None:
    assert found("\ndef test():\n    from helpers import Job, ask, inner") == [
        "tests/test_one.py:3: helpers has no ask",
        "tests/test_one.py:3: helpers has no inner",
    ]


def test_modules_of_others_are_not_looked_into() -> None:
    assert found("from os import nothing\nfrom . import helpers\nfrom helpers import *") == []


def test_a_package_offers_its_modules() -> None:
    package = {"pyft/errors.py": "class UsageError(Exception): ...", "pyft/__init__.py": ""}
    assert found("from pyft import errors\nfrom pyft.errors import UsageError", **package) == []
    assert found("from pyft.errors import Usage", **package) == [
        "tests/test_one.py:1: pyft.errors has no Usage"
    ]


def test_a_module_of_ours_has_to_be_there() -> None:
    package = {"pyft/errors.py": "", "pyft/__init__.py": ""}
    lost = "from pyft.error import UsageError\nimport pyft.errors\nimport pyft.log\nimport os.no"
    assert found(lost, **package) == [
        "tests/test_one.py:1: there is no module pyft.error",
        "tests/test_one.py:3: there is no module pyft.log",
    ]


def test_a_module_that_makes_names_offers_any() -> None:
    made = {"tests/made.py": "def __getattr__(name): ...", "tests/star.py": "from os import *"}
    assert found("from made import any\nfrom star import other", **made) == []
