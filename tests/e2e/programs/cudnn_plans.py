"""Ask cuDNN for engines and plans of several graphs, for an H100 that need not be there.

cudnn_plans.py LIBRARY [WAIT_FOR]    LIBRARY: a file, or "-" for what the process has already.
WAIT_FOR: a file whose existence is waited for after the first graph's engines are known.

cuDNN takes the properties of a device as text instead of a handle ("deviceless" plans), so that
it needs no GPU up to the execution. Numbers are those of cudnn_graph.h.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DEVICE = {
    "deviceName": "NVIDIA H100 80GB HBM3", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
    "multiProcessorCount": 132, "maxSharedMemoryPerBlock": 49152, "warpSize": 32,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
    "totalGlobalMem": 85 * 10**9, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000, "l2CacheSize": 52428800, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
    "isTccDriver": 0, "supportCoopLaunch": 1,
}  # fmt: skip

POINTWISE, CONVOLUTION, ENGINE, CONFIG, HEURISTICS, PLAN, KNOB = 0, 1, 2, 3, 4, 5, 7
FORWARD, BACKWARD_FILTER, BACKWARD_DATA, ON_POINTS, GRAPH, TENSOR = 10, 11, 12, 13, 15, 17
MATMUL, MATMUL_OPERATION, DEVICE_PROPERTIES = 18, 19, 38
FLOAT, HALF = 0, 2
ADD, MULTIPLY, GELU = 0, 1, 104
KINDS = {  # of attributes: number and C type
    "type": (1, ctypes.c_int), "bool": (2, ctypes.c_bool), "int": (3, ctypes.c_int64),
    "float": (4, ctypes.c_float), "mode": (7, ctypes.c_int), "heuristic": (8, ctypes.c_int),
    "knob": (9, ctypes.c_int), "numerical": (11, ctypes.c_int), "point": (14, ctypes.c_int),
    "object": (15, ctypes.c_void_p), "behaviour": (19, ctypes.c_int), "text": (24, ctypes.c_char),
}  # fmt: skip
KNOBS, ENGINES_SHOWN, WAIT_S = 44, 3, 60

cudnn = ctypes.CDLL(None if sys.argv[1] == "-" else sys.argv[1])


def make(kind: int, **attributes: object) -> ctypes.c_void_p:
    """Return a finished descriptor; attributes are named KIND_NUMBER."""
    made = ctypes.c_void_p()
    check(cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)), f"create {kind}")
    for name, value in attributes.items():
        of, _, number = name.partition("_")
        code, ctype = KINDS[of]
        values = value if isinstance(value, (list, bytes)) else [value]
        array = (ctype * len(values))(*(getattr(one, "value", one) for one in values))
        count = ctypes.c_int64(len(values))
        status = cudnn.cudnnBackendSetAttribute(made, int(number), code, count, array)
        check(status, f"attribute {number} of {kind}")
    if attributes:
        check(cudnn.cudnnBackendFinalize(made), f"finalize {kind}")
    return made


def get(
    of: ctypes.c_void_p, number: int, kind: str, room: int, into: list | None = None
) -> tuple[int, int, list]:
    """Return the status, how many there are, and what was told; `into` are descriptors to fill."""
    code, ctype = KINDS[kind]
    array = (ctype * room)(*(one.value for one in into or [])) if room else None
    count = ctypes.c_int64(-1)
    status = cudnn.cudnnBackendGetAttribute(
        of, number, code, ctypes.c_int64(room), ctypes.byref(count), array
    )
    told = [] if into is not None or array is None else list(array)[: count.value]
    return status, count.value, told


def check(status: int, what: str) -> None:
    if status:
        raise SystemExit(f"[{what}] fails with [{status}]")


def tensor(uid: int, sizes: list[int], strides: list[int], **more: object) -> ctypes.c_void_p:
    given = {"type_901": HALF, "int_900": 16, "int_902": sizes, "int_903": strides, "int_906": uid}
    return make(TENSOR, **(given | more))


def image(uid: int, sizes: list[int]) -> ctypes.c_void_p:
    """Return a tensor whose channels lie together."""
    _, channels, height, width = sizes
    return tensor(uid, sizes, [channels * height * width, 1, width * channels, channels])


def matrix(uid: int, rows: int, columns: int, **more: object) -> ctypes.c_void_p:
    return tensor(uid, [1, rows, columns], [rows * columns, columns, 1], **more)


def pointwise(mode: int, x: object, y: object, b: object = None) -> ctypes.c_void_p:
    how = make(POINTWISE, point_0=mode, type_1=FLOAT)
    second = {} if b is None else {"object_752": b}
    return make(ON_POINTS, object_750=how, object_751=x, object_753=y, **second)


def graphs() -> Iterator[tuple[str, ctypes.c_void_p]]:
    """Convolutions as in training, and a matrix product with what is fused to it."""
    x, w, y = image(1, [8, 64, 32, 32]), image(2, [64, 64, 3, 3]), image(3, [8, 64, 32, 32])
    how = make(
        CONVOLUTION, type_100=FLOAT, mode_101=1, int_102=[1, 1], int_103=[1, 1],
        int_104=[1, 1], int_105=[1, 1], int_106=2,
    )  # fmt: skip
    yield "forward", make(
        FORWARD, float_700=1.0, float_701=0.0, object_702=how, object_703=w, object_704=x,
        object_705=y,
    )  # fmt: skip
    yield "backward data", make(
        BACKWARD_DATA, float_706=1.0, float_707=0.0, object_708=how, object_709=w, object_710=x,
        object_711=y,
    )  # fmt: skip
    yield "backward filter", make(
        BACKWARD_FILTER, float_712=1.0, float_713=0.0, object_714=how, object_715=w, object_716=x,
        object_717=y,
    )  # fmt: skip
    hidden = [matrix(uid, 512, 768, type_901=FLOAT, bool_907=True) for uid in (10, 11, 12)]
    bias, scale = matrix(5, 1, 768), matrix(6, 1, 1, type_901=FLOAT, bool_908=True)
    product = make(MATMUL, type_1500=FLOAT)
    yield "fused product", [
        make(MATMUL_OPERATION, object_1520=matrix(7, 512, 256), object_1521=matrix(8, 256, 768),
             object_1522=hidden[0], object_1523=product),
        pointwise(MULTIPLY, hidden[0], hidden[1], scale),
        pointwise(ADD, hidden[1], hidden[2], bias),
        pointwise(GELU, hidden[2], matrix(9, 512, 768)),
    ]  # fmt: skip


def show(name: str, config: ctypes.c_void_p, device: ctypes.c_void_p) -> None:
    """Print what an engine is, and what a plan with it takes."""
    engine = make(ENGINE)
    get(config, 300, "object", 1, [engine])
    choices = [make(KNOB) for _ in range(KNOBS)]
    _, known, _ = get(config, 302, "object", KNOBS, choices)
    knobs = [(get(k, 600, "knob", 1)[2], get(k, 601, "int", 1)[2]) for k in choices[:known]]
    notes = get(engine, 1303, "numerical", 20), get(engine, 1305, "behaviour", 20)
    print(name, "engine", get(engine, 1301, "int", 1), "knobs", knobs, "notes", notes)
    plan = make(PLAN, object_401=config, object_407=device)
    print(name, "plan", get(plan, 402, "int", 1))
    for gone in (plan, engine, *choices):
        check(cudnn.cudnnBackendDestroyDescriptor(gone), "destroy")


def main() -> None:
    device = make(DEVICE_PROPERTIES, text_2702=json.dumps(DEVICE).encode() + b"\0")
    for name, operations in graphs():
        graph = make(GRAPH, object_801=operations)
        print(name, "has engines in all", get(graph, 802, "int", 1), flush=True)
        if isinstance(operations, list):
            continue  # engines that are compiled need a whole driver
        ask = make(HEURISTICS, heuristic_200=0, object_201=graph, object_204=device)
        _, count, _ = get(ask, 202, "object", 0, [])
        configs = [make(CONFIG) for _ in range(count)]
        _, got, _ = get(ask, 202, "object", count, configs)
        print(name, "has engines", count, got, flush=True)
        if name == "forward" and len(sys.argv) > 2:
            deadline = time.monotonic() + WAIT_S
            while not Path(sys.argv[2]).exists():
                if time.monotonic() > deadline:
                    raise SystemExit(f"[{sys.argv[2]}] does not come")
                time.sleep(0.01)
        for config in configs[: min(got, ENGINES_SHOWN)]:
            show(name, config, device)


if __name__ == "__main__":
    main()
