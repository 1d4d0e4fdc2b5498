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
        ("proxy/client/bad.cc", "proxy/server/session.h", "server/session.h"),
        ("proxy/server/recovery/bad.cc", "proxy/client/device.h", "client/device.h"),
        ("proxy/ring/bad.h", "proxy/api/wire.h", "api/wire.h"),
        ("proxy/client/core/bad.cc", "flexccl/include/flexccl.h", "flexccl.h"),
    ],
)
def test_an_include_across_the_layers_is_refused(
    tmp_path: Path, source: str, target: str, include: str
) -> None:
    result = run(tree(tmp_path, {target: "", source: f'#include "{include}"\n'}))
    assert result.returncode == 1
    part = "/".join(source.split("/")[:2])
    assert f"{source}:1: [{part}] may not include [{include}]" in result.stdout


def test_folders_that_include_each_other_are_refused(tmp_path: Path) -> None:
    files = {
        "softgpu/core/a.h": '#include "exec/b.h"\n',
        "softgpu/exec/b.h": '#include "decode/c.h"\n',
        "softgpu/decode/c.h": '#include "core/d.h"\n',
        "softgpu/core/d.h": "",
    }
    result = run(tree(tmp_path, files))
    assert result.returncode == 1
    assert result.stdout.count("closes a cycle of folders") == 3


def test_folders_in_an_order_are_fine(tmp_path: Path) -> None:
    files = {
        "softgpu/core/a.h": '#include "exec/b.h"\n#include "decode/c.h"\n',
        "softgpu/exec/b.h": '#include "decode/c.h"\n#include <vector>\n#include "generated.h"\n',
        "softgpu/decode/c.h": "",
    }
    result = run(tree(tmp_path, files))
    assert result.returncode == 0, result.stdout


def test_an_exception_that_nothing_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKER.parent))
    import layering

    problems = list(layering.check_cycles([], {("softgpu/core", "softgpu/loader")}))
    assert problems == [
        "tools/check/layering.py: [softgpu/core] -> [softgpu/loader] is in no cycle: take it out"
    ]


def test_a_folder_outside_the_parts_is_named(tmp_path: Path) -> None:
    files = {"proxy/new/a.cc": '#include "ring/b.h"\n', "proxy/ring/b.h": ""}
    result = run(tree(tmp_path, files))
    assert "proxy/new/a.cc:1: lies in no part that the layering knows" in result.stdout


def test_importing_torch_outside_its_folder_is_refused(tmp_path: Path) -> None:
    result = run(tree(tmp_path, {"pyft/cli/bad.py": "import torch.nn\n"}))
    assert result.returncode == 1
    assert "pyft/cli/bad.py:1: only pyft/torch_support imports torch" in result.stdout
