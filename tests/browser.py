"""A page as a real browser lays it out: Debian's chromium, without a window and without a network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_MARK = "pyft-measured"


def _start(folder: Path, page: Path, *options: str) -> str:
    """Run chromium on a file, and return what it prints."""
    assert CHROMIUM
    offline = ("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *offline]
    command += [f"--user-data-dir={folder / 'profile'}", *options, page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measure(folder: Path, page: Path, script: str, width: int = 1100) -> Any:
    """Return the value of a JavaScript expression in the page, when that has been laid out."""
    copy = folder / "measured.html"
    code = f"document.body.innerHTML += '<pre id={_MARK}></pre>';"
    code = f"const found = JSON.stringify({script}); {code}"
    code += f"document.getElementById('{_MARK}').textContent = found;"
    copy.write_text(page.read_text().replace("</body>", f"<script>{code}</script></body>"))
    dom = _start(folder, copy, f"--window-size={width},900", "--dump-dom")
    found = re.search(rf'<pre id="{_MARK}">(.*?)</pre>', dom, re.DOTALL)
    assert found, dom[-2000:]
    return json.loads(unescape(found.group(1)))


def picture(folder: Path, page: Path, file: Path, width: int, height: int) -> None:
    """Write what the browser shows as a PNG."""
    _start(folder, page, f"--window-size={width},{height}", f"--screenshot={file}")
    assert file.read_bytes().startswith(b"\x89PNG")
