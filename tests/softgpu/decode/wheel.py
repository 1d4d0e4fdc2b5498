"""The code for one architecture inside the installed PyTorch wheel: cubins, sections, bytes."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

FATBIN_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
KIND_ELF = 2
SM_75 = 75
FLAG_ZSTD = 0x8000


def torch_cuda_library() -> Path | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "lib/libtorch_cuda.so"
    return path if path.exists() else None


def load_zstd() -> ctypes.CDLL | None:
    name = ctypes.util.find_library("zstd") or "libzstd.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def decompress(zstd: ctypes.CDLL, data: bytes, size: int) -> bytes:
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    target = ctypes.create_string_buffer(size)
    got = zstd.ZSTD_decompress(target, size, data, len(data))
    if got != size:
        raise ValueError(f"a cubin of [{size}] bytes decompresses to [{got}]")
    return target.raw


def entries(view: mmap.mmap, wanted: int) -> Iterator[tuple[int, int, int, int]]:
    """(payload offset, payload bytes, flags, size when decompressed) of each cubin for an arch."""
    at = view.find(FATBIN_MAGIC)
    while at >= 0:
        end = at + 16 + struct.unpack_from("<Q", view, at + 8)[0]
        entry = at + 16
        while entry + 64 <= end:
            kind, _, header, padded = struct.unpack_from("<HHIQ", view, entry)
            (compressed,) = struct.unpack_from("<I", view, entry + 16)
            (arch,) = struct.unpack_from("<I", view, entry + 28)
            (flags,) = struct.unpack_from("<Q", view, entry + 40)
            (full,) = struct.unpack_from("<Q", view, entry + 56)
            if kind == KIND_ELF and arch == wanted:
                yield entry + header, compressed or padded, flags, full
            entry += header + padded
        at = view.find(FATBIN_MAGIC, end)


class Wheel:
    """Random access to the cubins, in file order."""

    def __init__(self, library: Path, zstd: ctypes.CDLL, arch: int = SM_75) -> None:
        self.zstd = zstd
        self.file = library.open("rb")
        self.view = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        self.entries = list(entries(self.view, arch))

    def cubin(self, index: int) -> bytes:
        start, size, flags, full = self.entries[index]
        data = self.view[start : start + size]
        return decompress(self.zstd, data, full) if flags & FLAG_ZSTD else data


def text_sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each .text.<kernel> section."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    count, names_index = struct.unpack_from("<HH", cubin, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + 64 * i) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode()
        if name.startswith(".text."):
            yield name[len(".text.") :], cubin[header[4] : header[4] + header[5]]
