"""What flushing costs a core, and what parity costs the disks: `flush.py [--mebibytes N]`.

Per code: GB of data per second that one thread makes parity and digests of, and bytes on disk against
copies that survive the same losses.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from pyft import _native
from pyft.flush import manifest
from pyft.flush.codes import Code
from pyft.flush.writer import Writer, cells_of, padded, stripes_of
from pyft.images.contents import Contents

CODES = ((1, 0), (2, 1), (4, 1), (4, 2), (8, 2), (6, 3))
TIMES = 5


def seconds(code: Code, cells: list[bytes]) -> float:
    """Return what parity and digests of all cells take a thread."""
    begun = time.thread_time()
    for stripe in stripes_of(cells, code.data):
        whole = padded(stripe, code.data)
        for cell in (*whole, *code.encode(whole)):
            _native.digest(cell)
    return time.thread_time() - begun


def on_disk(data: int, parity: int, stream: bytes) -> int:
    """Return how many bytes a line has in all folders."""
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root) / str(at) for at in range(data + parity)]
        for folder in folders:
            folder.mkdir()
        about = {"step": 1, "contents": Contents([("a", len(stream))], []).note(), "image": {}}
        Writer(folders, parity, []).write(1, about, cells_of([stream]))
        return sum(path.stat().st_size for path in Path(root).glob("*/line-1/*"))


def main() -> None:
    """Print a line for each code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mebibytes", type=int, default=64)
    size = parser.parse_args().mebibytes << 20
    stream = bytes(range(256)) * (size >> 8)
    cells = list(cells_of([stream]))
    assert len(cells) == size // manifest.CELL
    copy = on_disk(1, 0, stream)
    print(f"{'code':>6} {'GB/s of a core':>15} {'bytes / bytes of copies':>24}")
    for data, parity in CODES:
        code = Code(data, parity)
        took = statistics.median(seconds(code, cells) for _ in range(TIMES))
        ratio = on_disk(data, parity, stream) / (copy * (parity + 1))
        print(f"{data:>4}+{parity} {size / took / 1e9:>15.2f} {ratio:>24.3f}")


main()
