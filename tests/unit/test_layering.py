"""The layering checker finds what it is there to find, and the tree has none of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check" / "layering.py"


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False
    )


def refused(root: Path, files: dict[str, str]) -> str:
    """Return what is said of a tree that breaks a rule."""
    result = run(tree(root, files))
    assert result.returncode == 1
    return result.stdout


def tree(root: Path, files: dict[str, str]) -> Path:
    (root / "pyft").mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_tree_keeps_the_layers() -> None:
    result = run(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("source", "target", "include"),
    [
        ("proxy/client/bad.cc", "proxy/server/session/session.h", "server/session/session.h"),
        ("proxy/server/recovery/bad.cc", "proxy/client/device/device.h", "client/device/device.h"),
        ("proxy/ring/bad.h", "proxy/api/wire.h", "api/wire.h"),
        ("proxy/client/core/bad.cc", "flexccl/include/flexccl.h", "flexccl.h"),
    ],
)
def test_an_include_across_the_layers_is_refused(
    tmp_path: Path, source: str, target: str, include: str
) -> None:
    lines = (f'#include "{include}"\n', f"#include <{include}>  // why\n")
    said = refused(tmp_path, {target: "", source: "".join(lines)})
    part = "/".join(source.split("/")[:2])
    for line in (1, 2):
        assert f"{source}:{line}: [{part}] may not include [{include}]" in said


def test_types_of_nccl_may_be_included_where_a_comment_says_so(tmp_path: Path) -> None:
    header, source = "flexccl/include/flexccl.h", "proxy/client/core/good.cc"
    text = "#include <flexccl.h>  // NCCL's types and prototypes\n"
    assert run(tree(tmp_path, {header: "", source: text})).returncode == 0


def test_folders_that_include_each_other_are_refused(tmp_path: Path) -> None:
    files = {
        "softgpu/core/a.h": '#include "exec/b.h"\n',
        "softgpu/exec/b.h": '#include "decode/c.h"\n',
        "softgpu/decode/c.h": '#include "core/d.h"\n',
        "softgpu/core/d.h": "",
    }
    assert refused(tmp_path, files).count("closes a cycle of folders") == 3


def test_folders_in_an_order_are_fine(tmp_path: Path) -> None:
    files = {
        "softgpu/core/a.h": '#include "exec/b.h"\n#include "decode/c.h"\n',
        "softgpu/exec/b.h": '#include "decode/c.h"\n#include <vector>\n#include "generated.h"\n',
        "softgpu/decode/c.h": "",
    }
    result = run(tree(tmp_path, files))
    assert result.returncode == 0, result.stdout


def test_modules_that_import_each_other_across_folders_are_refused(tmp_path: Path) -> None:
    files = {
        "pyft/one/__init__.py": "",
        "pyft/one/a.py": "from pyft.two import b\n",
        "pyft/two/__init__.py": "",
        "pyft/two/b.py": "if TYPE_CHECKING:\n    from pyft.one.c import C\n",
        "pyft/one/c.py": "",
        "pyft/__main__.py": "from pyft.one import a\n",
        "pyft/config.py": "",
        "pyft/one/d.py": "from pyft import config\n",
    }
    said = refused(tmp_path, files)
    assert said.count("closes a cycle of folders") == 2
    assert "pyft/two/b.py:2: [pyft/two] includes [pyft.one.c] of [pyft/one]" in said


def test_the_lab_has_no_cycle_of_folders_either(tmp_path: Path) -> None:
    files = {
        "pyft_lab/errors.py": "",
        "pyft_lab/report.py": "def f() -> None:\n    from pyft_lab.sim import sweep\n",
        "pyft_lab/sim/__init__.py": "",
        "pyft_lab/sim/sweep.py": "from pyft_lab.errors import LabError\n",
    }
    said = refused(tmp_path, files)
    assert said.count("closes a cycle of folders") == 2
    assert "pyft_lab/report.py:2: [pyft_lab] includes [pyft_lab.sim] of [pyft_lab/sim]" in said


def test_a_folder_outside_the_parts_is_named(tmp_path: Path) -> None:
    files = {"proxy/new/a.cc": '#include "ring/b.h"\n', "proxy/ring/b.h": ""}
    said = refused(tmp_path, files)
    assert "proxy/new/a.cc:1: lies in no part that the layering knows" in said


def test_importing_torch_outside_its_folder_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, {"pyft/cli/bad.py": "import torch.nn\n"})
    assert "pyft/cli/bad.py:1: only pyft/torch_support imports torch" in said


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, {"pyft/cli/bad.py": "\nfrom ..torch_support import hooks\n"})
    assert "pyft/cli/bad.py:2: a relative import: name the module in full" in said


@pytest.mark.parametrize(
    ("source", "imports", "problem"),
    [
        ("pyft/a.py", "import pyft_lab.api", "pyft imports nothing of pyft_lab"),
        ("pyft_lab/a.py", "from pyft.config import x", "pyft_lab knows pyft by its command line"),
        ("pyft_lab/sim/a.py", "import torch", "only pyft_lab/workloads imports torch"),
        ("pyft_lab/mechanisms/a.py", "import torch", "only pyft_lab/workloads imports torch"),
        ("pyft_lab/errors.py", "def f(): import torch", "only pyft_lab/workloads imports torch"),
    ],
)
def test_the_lab_and_the_core_are_apart(
    tmp_path: Path, source: str, imports: str, problem: str
) -> None:
    files = {
        source: imports + "\n",
        "pyft_lab/workloads/a.py": "import torch",
        "pyft_lab/mechanisms/b.py": "def f() -> None:\n    import torch",
        "pyft_lab/api.py": "def f() -> None:\n    import torch",
    }
    said = refused(tmp_path, files)
    assert f"{source}:1: {problem}" in said
    assert "workloads/a.py" not in said
    assert "mechanisms/b.py" not in said
    assert "api.py" not in said
