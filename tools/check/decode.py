"""Decode all sm_75 code of the installed PyTorch wheel and compare it with nvdisasm (`--wheel`).

Each of its instructions has to decode, and each distinct one (apart from its scheduling bits) has
to print as the vendor's disassembler prints it. Exit status 1 when one does not, 2 when the check
cannot be made. About a minute.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/softgpu/decode"))
import vendor  # noqa: E402
import wheel  # noqa: E402
import wheel_check  # noqa: E402

BUILT = ROOT / "build/meson/tests/softgpu/decode/decode_dump"
SHOWN = 20  # of the undecoded and of the different ones


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", action="store_true", required=True, help="the installed torch")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th cubin")
    return parser.parse_args()


def refuse(sentence: str) -> NoReturn:
    print(f"decode: {sentence}", file=sys.stderr)
    sys.exit(2)


def open_wheel(arch: int = wheel.SM_75) -> wheel.Wheel:
    """Return the installed wheel's code for an architecture, or refuse if something is missing."""
    if BUILT.exists():
        os.environ.setdefault("DECODE_DUMP", str(BUILT))
    try:
        vendor.decode_dump()
        vendor.nvdisasm()
    except vendor.Missing as missing:
        refuse(f"{missing}; run `make programs` first")
    library, zstd = wheel.torch_cuda_library(), wheel.load_zstd()
    if library is None:
        refuse(f"[{sys.executable}] has no CUDA build of torch")
    if zstd is None:
        refuse("there is no [libzstd] to unpack the wheel's code")
    return wheel.Wheel(library, zstd, arch)


def check(opened: wheel.Wheel, every: int, path: Path) -> bool:
    """Print the counts and the first findings; return whether all is well."""
    instructions, errors, words = 0, [], set()
    indices = range(0, len(opened.entries), every)
    for index in indices:
        cubin = opened.cubin(index)
        count, sentences = wheel_check.undecoded(cubin, path)
        instructions += count
        errors += [f"undecoded: cubin [{index}] {sentence}" for sentence in sentences]
        wheel_check.add_words(cubin, words)
    different = wheel_check.different(words, path)
    for line in errors[:SHOWN]:
        print(line)
    for ours, vendors in different[:SHOWN]:
        print(f"different: ours [{ours}] vendor [{vendors}]")
    print(f"cubins: {len(indices)}\ninstructions: {instructions}\ndistinct words: {len(words)}")
    print(f"undecoded: {len(errors)}\ndifferent: {len(different)}")
    return instructions > 0 and not errors and not different


def main() -> int:
    arguments = parse_arguments()
    opened = open_wheel()
    with tempfile.TemporaryDirectory() as folder:
        return 0 if check(opened, arguments.every, Path(folder) / "code") else 1


if __name__ == "__main__":
    sys.exit(main())
