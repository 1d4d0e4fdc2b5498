"""Where the memory of an argument lies, how many elements of which type it has.

Understood without importing either: NumPy arrays, PyTorch tensors on the CPU, and objects with
Python's buffer protocol (bytes, bytearray, array.array, mmap, memoryview).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyft._native import flexccl as native
from pyft.flexccl.types import DataType, refuse


@dataclass(frozen=True)
class Buffer:
    """Memory of this process. `owner` keeps it alive."""

    address: int
    count: int
    dtype: DataType
    writable: bool
    owner: Any

    @property
    def size_bytes(self) -> int:
        """Bytes in all."""
        return self.count * self.dtype.size_bytes


# Letters of Python's struct formats, as buffer objects have them, with their NumPy names.
_LETTERS = {"b": "i1", "B": "u1", "c": "u1", "?": "u1", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}
_LETTERS |= {"q": "i8", "Q": "u8", "e": "f2", "f": "f4", "d": "f8"}
_CODES = {
    "i1": DataType.INT8,
    "u1": DataType.UINT8,
    "i4": DataType.INT32,
    "u4": DataType.UINT32,
    "i8": DataType.INT64,
    "u8": DataType.UINT64,
    "f2": DataType.FLOAT16,
    "f4": DataType.FLOAT32,
    "f8": DataType.FLOAT64,
}


def _finish(
    owner: Any, address: int, size_bytes: int, own: DataType | None, want: DataType | None, w: bool
) -> Buffer:
    dtype = want if want is not None else own
    if dtype is None:
        raise refuse(f"the elements of a [{type(owner).__name__}] have no type: pass dtype=")
    if size_bytes % dtype.size_bytes:
        raise refuse(f"[{size_bytes}] bytes are no whole number of elements of [{dtype.name}]")
    return Buffer(address, size_bytes // dtype.size_bytes, dtype, w, owner)


def _of_tensor(tensor: Any, dtype: DataType | None) -> Buffer:
    if tensor.device.type != "cpu":
        raise refuse(f"a tensor on [{tensor.device}] is not in this process's memory")
    if not tensor.is_contiguous():
        raise refuse(f"a tensor with strides {list(tensor.stride())} is not contiguous")
    own = None if dtype is not None else DataType.named(str(tensor.dtype))
    size = tensor.numel() * tensor.element_size()
    return _finish(tensor, tensor.data_ptr(), size, own, dtype, True)


def _of_array(array: Any, dtype: DataType | None) -> Buffer:
    interface = array.__array_interface__
    if interface.get("strides") is not None:
        raise refuse(f"an array with strides {list(interface['strides'])} is not contiguous")
    if interface["typestr"].startswith(">"):
        raise refuse(f"an array of [{interface['typestr']}] has the other byte order")
    own = None if dtype is not None else DataType.named(array.dtype.name)
    address, read_only = interface["data"]
    return _finish(array, address, array.nbytes, own, dtype, not read_only)


def _of_memory(memory: Any, dtype: DataType | None) -> Buffer:
    try:
        view = memoryview(memory)
    except TypeError:
        kind = type(memory).__name__
        raise refuse(f"a [{kind}] is neither array nor tensor nor buffer") from None
    if not view.c_contiguous:
        raise refuse(f"a memoryview with strides {list(view.strides or ())} is not contiguous")
    if view.readonly and not isinstance(memory, bytes):
        raise refuse(f"a read-only [{type(memory).__name__}] has no address: copy it into bytes")
    own = _CODES.get(_LETTERS.get(view.format.lstrip("@=<"), ""))
    address = native.address_of(memory)
    return _finish(memory, address, view.nbytes, own, dtype, not view.readonly)


def describe(memory: Any, dtype: DataType | None = None) -> Buffer:
    """Describe an argument; `dtype` overrides its own element type.

    Raises FlexcclError for memory that is not contiguous, not on the CPU, or of unknown type.
    """
    if isinstance(memory, Buffer):
        return memory
    if hasattr(memory, "data_ptr"):
        return _of_tensor(memory, dtype)
    if hasattr(memory, "__array_interface__"):
        return _of_array(memory, dtype)
    return _of_memory(memory, dtype)
