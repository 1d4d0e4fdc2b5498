"""The layering checker finds what it is there to find, and the tree has none of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check" / "layering.py"


def run(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKER), str(root)], capture_output=True, text=True, check=False
    )


def test_the_tree_keeps_the_layers() -> None:
    result = run(ROOT)
    assert result.returncode == 0, result.stdout


def test_client_including_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proxy" / "client").mkdir(parents=True)
    (tmp_path / "pyft").mkdir()
    (tmp_path / "proxy" / "client" / "bad.cc").write_text('#include "server/session.h"\n')
    result = run(tmp_path)
    assert result.returncode == 1
    assert "proxy/client/bad.cc:1: [proxy/client] may not include" in result.stdout


def test_importing_torch_outside_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyft" / "cli").mkdir(parents=True)
    (tmp_path / "pyft" / "cli" / "bad.py").write_text("import torch.nn\n")
    result = run(tmp_path)
    assert result.returncode == 1
    assert "pyft/cli/bad.py:1: only pyft/torch_support imports torch" in result.stdout
