"""PyTorch on the soft GPU without the proxy: each test runs a small program with the libraries
preloaded and compares it with the CPU, or with itself.

SOFTGPU_LIBRARY names the library; without it, that of the installed package is tested.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")


def native_dir() -> Path:
    """Return the folder of libsoftgpu.so, or skip."""
    library = os.environ.get("SOFTGPU_LIBRARY")
    if not library:
        pytest.skip("[build]: SOFTGPU_LIBRARY names no libsoftgpu.so, and pyft is not installed")
    return Path(library).parent


def run(program: str, *args: str, check: bool = True, **env: str) -> subprocess.CompletedProcess:
    """Run Python code (or a file of programs/) in direct mode; fails with its output."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("[torch]: it is not installed")
    folder = native_dir()
    preload = f"{folder / 'libsoftgpu.so'}:{folder / 'libsoftgpu_nvml.so'}"
    file = PROGRAMS / program
    code = [str(file)] if program.endswith(".py") else ["-c", textwrap.dedent(program)]
    done = subprocess.run(
        [sys.executable, *code, *args],
        env={**os.environ, "LD_PRELOAD": preload, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if check and done.returncode:
        pytest.fail(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done


def test_device_is_there() -> None:
    out = run(
        """
        import torch
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert torch.cuda.get_device_capability(1) == (7, 5)
        assert torch.cuda.get_device_name() == "Soft GPU (sm_75)"
        x = torch.arange(1000.0, device="cuda:1")
        print((x + x).sum().item(), (x.to("cuda:0") * 2).sum().item())
        """,
        SOFTGPU_DEVICES="2",
    )
    assert out.stdout.split() == ["999000.0", "999000.0"]


def test_operators_agree_with_the_cpu() -> None:
    run("operators.py")


@pytest.mark.parametrize("args", [[], ["fused"], ["math"], ["fused", "drop"]])
def test_gpt_trains_bitwise_repeatably(args: list[str]) -> None:
    first = run("gpt.py", *args).stdout
    second = run("gpt.py", *args).stdout
    assert first == second
    assert "parameters" in first


@pytest.mark.parametrize("model", ["mlp", "cnn", "encoder", "lstm"])
def test_model_trains_like_on_the_cpu(model: str) -> None:
    run("models.py", model)


def test_kinds_of_models_train_like_on_the_cpu() -> None:
    run("zoo.py")


def test_fourier_transforms_agree_with_the_cpu() -> None:
    run("fft.py")


def test_fourier_transforms_do_not_depend_on_threads() -> None:
    program = """
        import hashlib, torch
        torch.manual_seed(0)
        for shape in ((5, 1021), (3, 4, 360), (64, 400)):
            x = torch.randn(shape, device="cuda")
            there = torch.fft.rfftn(x)
            for made in (torch.view_as_real(there), torch.fft.irfftn(there, s=shape)):
                bits = bytes(made.cpu().view(torch.uint8).flatten().tolist())
                print(hashlib.sha256(bits).hexdigest())
        """
    digests = [run(program, SOFTGPU_THREADS=count).stdout for count in ("1", "4")]
    assert len(set(digests[0].split())) == 6
    assert digests[0] == digests[1]


def test_parts_of_pytorch_around_the_operators() -> None:
    run("features.py", SOFTGPU_DEVICES="2")


def test_out_of_memory_is_an_exception() -> None:
    out = run(
        """
        import torch
        kept = torch.ones(100, device="cuda")
        try:
            torch.empty(1 << 30, device="cuda")
        except torch.OutOfMemoryError:
            print("out of memory", kept.sum().item())
        """,
        SOFTGPU_MEMORY=str(1 << 29),
    )
    assert out.stdout.strip() == "out of memory 100.0"


def test_expandable_segments() -> None:
    run(
        """
        import torch
        blocks = [torch.full((1 << 20,), i, device="cuda") for i in range(20)]
        assert [b[-1].item() for b in blocks] == list(range(20))
        del blocks
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info()[0] > 15 << 30
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )


def test_device_assert_is_sticky() -> None:
    out = run(
        """
        import torch
        table = torch.ones(4, 4, device="cuda")
        for attempt in range(2):
            try:
                table[torch.tensor([9], device="cuda")]
                torch.cuda.synchronize()
            except RuntimeError as error:
                print("device-side assert" in str(error))
        """
    )
    assert out.stdout.split() == ["True", "True"]
    assert out.stderr.count("softgpu: device [0]:") == 1


def test_fault_on_request() -> None:
    out = run(
        """
        import torch
        try:
            for i in range(10):
                done = i
                torch.ones(10, device="cuda").sum().item()
        except RuntimeError as error:
            print(done, "illegal memory access" in str(error))
        """,
        SOFTGPU_FAULT="7:700",
    )
    assert out.stdout.split() == ["3", "True"]


def test_unsupported_function_names_itself_once() -> None:
    out = run(
        """
        import ctypes, torch
        made = ctypes.c_void_p()
        for _ in range(2):
            print(ctypes.CDLL(None).cudnnCreate(ctypes.byref(made)), made.value)
        """
    )
    assert out.stdout.split() == ["3000", "None"] * 2
    assert out.stderr.count("softgpu: [cudnnCreate] is not supported") == 1


@pytest.mark.parametrize(
    "checks",
    ["cholesky", "lu ldl", "qr", "eigh eig", "svd", "refused gradients repeats"],
)
def test_dense_solvers(checks: str) -> None:
    # Without it PyTorch takes MAGMA for batches, whose kernels in the wheel begin at sm_80.
    run("solvers.py", *checks.split(), TORCH_LINALG_PREFER_CUSOLVER="1")


def test_forked_child_is_told() -> None:
    out = run(
        """
        import os, torch
        torch.ones(1, device="cuda")
        loader = torch.utils.data.DataLoader(list(range(8)), batch_size=4, num_workers=1,
                                             pin_memory=True)
        print(sum(batch.cuda().sum().item() for batch in loader))
        """
    )
    assert out.stdout.split() == ["28"]


def test_fat_binary_of_one_entry_loads_through_the_driver() -> None:
    run("mini_fatbin.py")


SUMS = """
    import torch
    where = torch.zeros(4096, dtype=torch.long, device="cuda")
    def total(parts):
        return torch.zeros(1, dtype=parts.dtype, device="cuda").index_add_(0, where, parts).item()
    for kind in (torch.float32, torch.float64):
        for _ in range(2):
            print(repr(total(torch.linspace(0.1, 1, 4096, dtype=kind, device="cuda"))))
    print(total(torch.ones(4096, device="cuda")), total(torch.ones_like(where)))
    parts = torch.randn(4096, generator=torch.Generator().manual_seed(1)).cuda().bfloat16()
    for _ in range(2):  # by compare-and-swap
        print(repr(total(parts)))
    """


def sums(**env: str) -> list[str]:
    """Return what float atomics add up to: fp32, fp64, each twice; sums that are exact; bf16."""
    return run(SUMS, **env).stdout.splitlines()


@pytest.mark.long
def test_noise_changes_the_last_digits_of_float_atomics_by_seed() -> None:
    plain, noisy = sums(), sums(SOFTGPU_NOISE="7:1")
    assert plain[0] == plain[1], "without noise each execution is the same"
    assert len({*noisy[:2], plain[0]}) == 3
    assert len({*noisy[2:4], plain[2]}) == 3
    assert all(abs(float(a) / float(b) - 1) < 1e-3 for a, b in zip(plain[:4], noisy, strict=False))
    assert noisy[4] == plain[4] == "4096.0 4096", "what is exact stays so"
    assert plain[5] == plain[6]
    assert len({*noisy[5:], plain[5]}) == 3, (
        "where no atomic instruction adds, blocks change places"
    )
    assert sums(SOFTGPU_NOISE="7:1", SOFTGPU_THREADS="3") == noisy
    assert sums(SOFTGPU_NOISE="7:2") != noisy, "another process"
    assert sums(SOFTGPU_NOISE="8:1") != noisy, "another seed"
    assert sums(SOFTGPU_NOISE="7") != sums(SOFTGPU_NOISE="7"), "of itself another process"
    refused = run(SUMS, SOFTGPU_NOISE="much")
    assert refused.stdout.splitlines() == plain
    assert "SOFTGPU_NOISE [much] is neither a number nor seed:start" in refused.stderr


def hashes(threads: int, seed: int) -> dict[str, str]:
    """Run threads.py: computation -> hash of its results."""
    out = run("threads.py", SOFTGPU_THREADS=str(threads), SOFTGPU_BLOCK_SEED=str(seed)).stdout
    return dict(line.split() for line in out.splitlines())


@pytest.mark.long
def test_same_bits_with_any_number_of_threads() -> None:
    natural, shuffled = hashes(1, 0), hashes(1, 7)
    assert hashes(3, 7) == shuffled
    # The seed is real: where blocks store or add to the same place, their order decides.
    assert natural["index_put"] != shuffled["index_put"]
    assert natural["index_add"] != shuffled["index_add"]
    # Where they do not, it is of no consequence.
    for name in ("sort", "unique", "histogram", "odd_reduction", "in_place", "training_step"):
        assert natural[name] == shuffled[name], name
