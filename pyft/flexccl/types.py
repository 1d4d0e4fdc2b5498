"""Element types, operators and transports of flexccl, with the numbers of its C API."""

from __future__ import annotations

import enum
import struct

from pyft.errors import PyftError


class Result(enum.IntEnum):
    """Result codes (ncclResult_t)."""

    SUCCESS = 0
    UNHANDLED_CUDA_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7


class FlexcclError(PyftError):
    """A call of flexccl failed; the text is the library's own sentence, `code` its result code."""

    def __init__(self, text: str, code: Result) -> None:
        super().__init__(text)
        self.code = code


def refuse(text: str) -> FlexcclError:
    """Make the error of an argument that this binding itself cannot use."""
    return FlexcclError(text, Result.INVALID_ARGUMENT)


class DataType(enum.IntEnum):
    """Element types (ncclDataType_t)."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8_E4M3 = 10
    FLOAT8_E5M2 = 11

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return _SIZES[self]

    @classmethod
    def named(cls, name: str) -> DataType:
        """Find a type by the name that NumPy, ml_dtypes or PyTorch has for it."""
        plain = name.removeprefix("torch.")
        if plain in _ALIASES:
            return _ALIASES[plain]
        try:
            return cls[plain.upper()]
        except KeyError:
            raise refuse(f"flexccl has no element type [{name}]") from None


_SIZES = dict(zip(DataType, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1), strict=True))
_ALIASES = {
    "bool": DataType.UINT8,
    "float8_e4m3fn": DataType.FLOAT8_E4M3,
}
_FORMATS = {
    DataType.INT8: "b",
    DataType.UINT8: "B",
    DataType.INT32: "i",
    DataType.UINT32: "I",
    DataType.INT64: "q",
    DataType.UINT64: "Q",
    DataType.FLOAT16: "e",
    DataType.FLOAT32: "f",
    DataType.FLOAT64: "d",
}


def scalar_bytes(value: float | bytes, dtype: DataType) -> bytes:
    """Return a scalar as an element; for types that Python cannot write, `value` is the bytes."""
    if isinstance(value, bytes):
        if len(value) != dtype.size_bytes:
            raise refuse(f"an element of [{dtype.name}] has not [{len(value)}] bytes")
        return value
    if dtype is DataType.BFLOAT16:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        return struct.pack("<H", (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    if dtype not in _FORMATS:
        raise refuse(f"give a scalar of [{dtype.name}] as its bytes, not as [{value}]")
    try:
        return struct.pack("<" + _FORMATS[dtype], value)
    except (struct.error, OverflowError):
        raise refuse(f"[{value}] is no value of type [{dtype.name}]") from None


class ReduceOp(enum.IntEnum):
    """Reductions (ncclRedOp_t). `Communicator.pre_mul_sum` makes more."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


class Transport(enum.IntEnum):
    """How ranks reach each other (flexcclTransport_t); never changes a result."""

    AUTO = 0
    LOOPBACK = 1
    SHM = 2
    TCP = 3
