"""What settings.toml is made into is fresh, and the check finds what goes round it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "gen"))

import gen_settings  # noqa: E402
import settings_table  # noqa: E402

CHECKER = ROOT / "tools" / "check" / "settings.py"
ENTRY = """
[[setting]]
name = "PYFT_NEW"
type = "int"
default = 3
help = "how many"
readers = ["server"]
"""


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False
    )


def tree(root: Path, files: dict[str, str]) -> Path:
    (root / "settings.toml").write_text(ENTRY)
    made = {name: emit() for name, emit in gen_settings.kept(root / "settings.toml").items()}
    use = {"proxy/server/use.cc": "auto n = settings::new();\n"}
    for name, text in {**made, **use, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_nothing_goes_round_the_table() -> None:
    result = run(ROOT)
    assert result.returncode == 0, result.stdout


def test_a_small_tree_has_no_problem(tmp_path: Path) -> None:
    result = run(tree(tmp_path, {}))
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("softgpu/x.cc", 'f(std::getenv("A"));\n', "softgpu/x.cc:1: reads the environment"),
        ("shim/x.cc", 'secure_getenv("A");\n', "shim/x.cc:1: reads the environment"),
        ("pyft/x.py", 'os.environ.get("PYFT_NEW")\n', "pyft/x.py:1: reads [PYFT_NEW] itself"),
        ("pyft/x.py", 'a = os.environ["PYFT_NEW"]\n', "pyft/x.py:1: reads [PYFT_NEW] itself"),
        ("pyft/x.py", 'os.getenv("PYFT_NEW")\n', "pyft/x.py:1: reads [PYFT_NEW] itself"),
        ("pyft/x.py", 'a = "PYFT_NEW" in os.environ\n', "pyft/x.py:1: reads [PYFT_NEW] itself"),
        ("pyft/x.py", "from os import environ, path\n", "pyft/x.py:1: imports os.environ"),
        ("pyft/x.py", "from os import getenv as get\n", "pyft/x.py:1: imports os.getenv"),
        ("proxy/server/use.cc", "\n", "settings.toml: [PYFT_NEW]: nothing in proxy/, shim/"),
        ("docs/env-vars.md", "\n", "docs/env-vars.md: is stale"),
    ],
)
def test_what_goes_round_the_table_is_refused(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    result = run(tree(tmp_path, {name: text}))
    assert result.returncode == 1
    assert problem in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"int"', '"number"', "the type [number]"),
        ("default = 3", 'default = "3"', "the default [3]"),
        ('["server"]', '["servers"]', "unknown readers ['servers']"),
        ("help", "hlep", "unknown keys ['hlep']"),
        ('"int"\ndefault = 3', '"choice"', "the choices []"),
    ],
)
def test_mistakes_of_the_table_are_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    table = tmp_path / "settings.toml"
    table.write_text(ENTRY.replace(old, new))
    with pytest.raises(settings_table.TableError) as caught:
        settings_table.load(table)
    assert problem in str(caught.value)
