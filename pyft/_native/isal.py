"""Reed-Solomon codes by Intel's ISA-L (Debian's libisal2), which is loaded when it is there."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

_NAME = "libisal.so.2"
_TABLE = 32  # bytes of a coefficient's table
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS = {
    "gf_gen_cauchy1_matrix": (None, [_POINTER, _INT, _INT]),
    "gf_invert_matrix": (_INT, [_POINTER, _POINTER, _INT]),
    "ec_init_tables": (None, [_INT, _INT, _POINTER, _POINTER]),
    "ec_encode_data": (None, [_INT, _INT, _INT, _POINTER, _POINTER, _POINTER]),
}
Buffer = bytes | bytearray | memoryview


@functools.cache
def _library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(_NAME)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def lacks() -> str:
    """Return why there is no such code, nothing if there is."""
    try:
        _library()
    except (OSError, AttributeError) as error:
        return f"ISA-L cannot be loaded ({error}): install Debian's libisal2"
    return ""


def cauchy(columns: int, rows: int) -> list[bytes]:
    """Return rows of a matrix; with the unit rows before them, any `columns` rows are independent."""
    matrix = ctypes.create_string_buffer((columns + rows) * columns)
    _library().gf_gen_cauchy1_matrix(matrix, columns + rows, columns)
    return [matrix.raw[r * columns : (r + 1) * columns] for r in range(columns, columns + rows)]


def inverse(rows: Sequence[bytes]) -> list[bytes]:
    """Return the inverse of a square matrix; raise ValueError where there is none."""
    n = len(rows)
    source, out = ctypes.create_string_buffer(b"".join(rows), n * n), (ctypes.c_char * (n * n))()
    if _library().gf_invert_matrix(source, out, n) != 0:
        raise ValueError("the matrix has no inverse")
    return [out.raw[r * n : (r + 1) * n] for r in range(n)]


def multiply(rows: Sequence[bytes], cells: Sequence[Buffer]) -> list[bytearray]:
    """Return a matrix times a vector of cells, which have the same length."""
    library, columns, length = _library(), len(cells), len(cells[0])
    tables = ctypes.create_string_buffer(_TABLE * columns * len(rows))
    library.ec_init_tables(columns, len(rows), b"".join(rows), tables)
    made = [bytearray(length) for _ in rows]
    sources = (_POINTER * columns)(*(_address(cell) for cell in cells))
    targets = (_POINTER * len(rows))(*(_address(cell) for cell in made))
    library.ec_encode_data(length, columns, len(rows), tables, sources, targets)
    return made


def _address(cell: Buffer) -> int | None:
    """Return where a cell lies; its owner keeps it there."""
    if isinstance(cell, bytes):
        return ctypes.cast(ctypes.c_char_p(cell), _POINTER).value
    return ctypes.addressof(ctypes.c_char.from_buffer(cell))
