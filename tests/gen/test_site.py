"""Links of the site lead to where it has what they name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="needs [mkdocs]: pip install -r requirements-dev.txt")

HOOKS = Path(__file__).resolve().parents[2] / "tools" / "site" / "hooks.py"
SPEC = importlib.util.spec_from_file_location("site_hooks", HOOKS)
assert SPEC is not None
assert SPEC.loader is not None
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)
OUTSIDE = hooks.pages_outside()


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("operate/run.md", "[g](../glossary.md#a)", "[g](../glossary.md#a)"),
        ("operate/run.md", "[s](../../softgpu/README.md#b)", "[s](../tree/softgpu/README.md#b)"),
        ("README.md", "[r](../README.md)", "[r](tree/README.md)"),
        ("tree/README.md", "![d](docs/demo.svg)", "![d](../demo.svg)"),
        ("tree/softgpu/README.md", "[m](../Makefile)", "m"),
        ("README.md", "[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
        ("README.md", "`[r](../README.md)`", "`[r](../README.md)`"),
    ],
)
def test_links(page: str, text: str, expected: str) -> None:
    assert hooks.rewrite(text, page, OUTSIDE) == expected


def test_pages_outside_are_ours() -> None:
    assert {"README.md", "CONTRIBUTING.md", "softgpu/README.md"} <= set(OUTSIDE)
    assert not [name for name in OUTSIDE if name.startswith(("docs/", ".venv/", "build/"))]
