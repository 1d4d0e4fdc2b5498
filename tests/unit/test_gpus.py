"""What `--gpus` means: with drivers of this test's making."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyft._native import cuda_releases
from pyft._native.driver import DriverError
from pyft.agent.job.environment import (
    link_for_triton,
    of_replacement,
    program_environment,
    server_environment,
)
from pyft.agent.job.gpus import Choice, choose, library_folders, on_this_host
from pyft.agent.job.options import (
    PROXY_LIBRARIES,
    SERVER_FILES,
    JobOptions,
    check_protection,
    replays_all,
)
from pyft.errors import NativeMissingError, UsageError

UUIDS = ["GPU-aa", "GPU-bb", "GPU-cc"]


def none() -> list[str]:
    raise DriverError("nothing answers")


@pytest.mark.parametrize(
    ("text", "spares", "real"),
    [
        ("auto", 0, ("GPU-aa", "GPU-bb", "GPU-cc")),
        ("auto", 1, ("GPU-aa", "GPU-bb", "GPU-cc")),
        ("2,0", 0, ("GPU-cc", "GPU-aa")),
        ("1", 1, ("GPU-bb", "GPU-aa")),
        ("1,1", 0, ("GPU-bb", "GPU-bb")),
    ],
)
def test_real_gpus(
    text: str, spares: int, real: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert choose(text, spares, lambda: UUIDS) == Choice(len(real) - spares, real)


@pytest.mark.parametrize(
    ("wanted", "here"),
    [
        ((), ()),  # soft GPUs
        (("GPU-cc", "GPU-aa"), ("GPU-cc", "GPU-aa")),  # it was on this host before
        (("GPU-xx", "GPU-yy"), ("GPU-cc", "GPU-bb")),  # of those that the user leaves
        (("GPU-xx", "GPU-xx", "GPU-yy"), ("GPU-cc", "GPU-cc", "GPU-bb")),
        (("GPU-cc", "GPU-yy"), ("GPU-cc", "GPU-bb")),
    ],
)
def test_a_place_of_another_host_has_as_many_gpus(
    wanted: tuple[str, ...], here: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    assert on_this_host(wanted, lambda: UUIDS) == here


def test_a_host_without_so_many_gpus_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    with pytest.raises(UsageError, match=r"works on \[3\] GPUs, and here are \[2\]"):
        on_this_host(("GPU-xx", "GPU-yy", "GPU-zz"), lambda: UUIDS)
    with pytest.raises(UsageError, match="no CUDA driver"):
        on_this_host(("GPU-xx",), none)
    assert on_this_host((), none) == ()


@pytest.mark.parametrize(
    ("listed", "real"),
    [("1,2", ("GPU-bb", "GPU-cc")), ("GPU-c,0,9,1", ("GPU-cc", "GPU-aa")), ("0", ("GPU-aa",))],
)
def test_auto_leaves_out_what_the_user_hides(
    listed: str, real: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert choose("auto", 0, lambda: UUIDS).real == real


@pytest.mark.parametrize(
    ("text", "spares", "sentence"),
    [
        (None, 0, "no GPU is chosen: say --gpus soft:N"),
        ("soft:0", 0, r"\[soft:0\] is out of range"),
        ("soft:9", 0, r"\[soft:9\] is out of range"),
        ("soft:4", 5, r"--spares \[5\] is too many beside \[soft:4\]"),
        ("all", 0, r"\[all\] cannot be used: say auto"),
        ("0,3", 0, r"GPU \[3\] does not exist: the driver has \[3\]"),
        ("0,1", 2, r"--spares \[2\] is too many beside \[0,1\]"),
        ("auto", 3, r"--spares \[3\] leaves none of the \[3\] GPUs"),
    ],
)
def test_impossible_wishes_are_named(
    text: str | None, spares: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(UsageError, match=sentence):
        choose(text, spares, lambda: UUIDS)


@pytest.mark.parametrize("text", ["auto", "0"])
def test_without_a_driver_the_error_says_what_to_do(text: str) -> None:
    said = rf"\[{text}\]: no CUDA driver: use soft:N.*\(nothing answers\)"
    with pytest.raises(UsageError, match=said):
        choose(text, 0, none)


def test_only_jobs_on_soft_gpus_need_the_soft_gpu(tmp_path: Path) -> None:
    """It is not built where there is no BLAS for it, as on machines with a GPU."""
    for name in (*PROXY_LIBRARIES, *SERVER_FILES):
        (tmp_path / name).touch()
    real = replace(options(real=("GPU-aa",)), native_dir=tmp_path)
    real.check_native_files()
    replace(real, direct=True, native_dir=Path("/nowhere")).check_native_files()
    soft = "libsoftgpu.so] is missing: install scipy-openblas32 and pyft again"
    for direct in (False, True):
        with pytest.raises(NativeMissingError) as error:
            replace(options(direct), native_dir=tmp_path).check_native_files()
        assert str(error.value).endswith(soft)
    (tmp_path / SERVER_FILES[0]).unlink()
    with pytest.raises(NativeMissingError, match="is missing: install pyft again"):
        real.check_native_files()


def options(direct: bool = False, real: tuple[str, ...] = ()) -> JobOptions:
    return JobOptions(
        job="j",
        log_dir=Path("/nowhere"),
        native_dir=Path("/native"),
        devices=2,
        spares=1,
        direct=direct,
        real_gpus=real,
        command=("true",),
    )


def test_options_survive_the_way_to_the_agent() -> None:
    job = options(real=tuple(UUIDS))
    arguments = job.to_arguments()
    end = arguments.index("--")
    line = [*arguments[:end], "--supervisor-fd", "3", *arguments[end:]]
    assert JobOptions.from_arguments(line) == (job, 3)


def test_a_server_sees_real_gpus_in_the_order_of_the_job() -> None:
    client = {"CUDA_VISIBLE_DEVICES": "7", "LD_PRELOAD": "x", "NCCL_DEBUG": "INFO"}
    got = server_environment(options(real=tuple(UUIDS)), client, device=0, gpu=2, gpus=3)
    assert got["PYFT_BACKEND_LIBRARY"] == "cuda"
    assert got["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-bb,GPU-cc"
    assert got["PYFT_ORDINALS"] == "2,1,0"
    shared = server_environment(options(real=("GPU-a", "GPU-a")), client, device=1, gpu=1, gpus=2)
    assert (shared["CUDA_VISIBLE_DEVICES"], shared["PYFT_ORDINALS"]) == ("GPU-a", "0,0")
    assert got.get("LD_LIBRARY_PATH", "").split(":") == (library_folders(13) or [""])
    assert (got["NCCL_DEBUG"], got["NCCL_GRAPH_REGISTER"]) == ("INFO", "0")
    asked = server_environment(options(real=tuple(UUIDS)), {"NCCL_GRAPH_REGISTER": "1"}, 0, 0, 3)
    assert asked["NCCL_GRAPH_REGISTER"] == "1"
    assert "LD_PRELOAD" not in got
    assert "CUDA_VISIBLE_DEVICES" not in server_environment(options(), client, 1, 1, 3)


def test_servers_load_the_libraries_of_pytorchs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_releases, "cuda_of_torch", lambda: (12, 8))
    where = (options(real=tuple(UUIDS)), 0, 0, 3)
    release = lambda **client: server_environment(where[0], client, *where[1:])["PYFT_CUDA_RELEASE"]  # noqa: E731
    assert (release(), release(PYFT_CUDA_RELEASE="13")) == ("12", "13")
    for torch in (None, (13, 0), (11, 8)):
        monkeypatch.setattr(cuda_releases, "cuda_of_torch", lambda torch=torch: torch)
        assert release() == "13"


@pytest.mark.parametrize("direct", [False, True])
def test_triton_finds_a_driver_to_link_with(tmp_path: Path, direct: bool) -> None:
    """Looked for is libcuda.so.1; versions up to 3.4 link with libcuda.so."""
    job = replace(options(direct=direct), log_dir=tmp_path)
    for _ in range(2):  # a next agent does it again
        link_for_triton(job)
    targets = {path.name: os.readlink(path) for path in (tmp_path / "triton").iterdir()}
    library = str(job.preload_libraries()[0])
    assert targets == {"libcuda.so": library, "libcuda.so.1": library}


def test_triton_finds_no_driver_of_a_job_before(tmp_path: Path) -> None:
    """A folder of --log-dir may be used again: by a job with other libraries, or by another pyft."""
    links = [tmp_path / "triton" / name for name in ("libcuda.so", "libcuda.so.1")]
    jobs = [replace(options(direct=direct), log_dir=tmp_path) for direct in (True, False)]
    jobs.append(replace(jobs[0], native_dir=Path("/elsewhere")))
    for job in jobs:
        link_for_triton(job)
        assert [os.readlink(link) for link in links] == [job.preload_libraries()[0]] * 2
    links[0].unlink()
    links[0].write_text("a file")
    link_for_triton(jobs[0])
    assert os.readlink(links[0]) == jobs[0].preload_libraries()[0]


def test_contents_in_gpus_only_are_refused_where_nccl_connects_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYFT_REPLAY", "PYFT_COLLECTIVES"):
        monkeypatch.delenv(name, raising=False)
    jit = replace(options(real=tuple(UUIDS)), protect="jit")
    with pytest.raises(
        UsageError, match="replaced alone, which NCCL does not allow: use --protect"
    ):
        check_protection(jit)
    shared = replace(jit, real_gpus=("GPU-a", "GPU-a"))
    for fine in (replace(jit, devices=1), shared, replace(jit, real_gpus=()), options()):
        check_protection(fine)
    check_protection(replace(jit, protect="snapshot"))
    monkeypatch.setenv("PYFT_COLLECTIVES", "flexccl")
    check_protection(jit)


def test_all_ranks_replay_where_nccl_connects_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYFT_REPLAY", "PYFT_COLLECTIVES"):
        monkeypatch.delenv(name, raising=False)
    job, shared = options(real=tuple(UUIDS)), options(real=("GPU-a", "GPU-a"))
    assert server_environment(job, {}, 0, 0, 3)["PYFT_REPLAY"] == "all"
    assert server_environment(job, {}, 0, 0, 3)["PYFT_COLLECTIVES"] == "nccl"
    assert server_environment(shared, {}, 0, 0, 2)["PYFT_COLLECTIVES"] == "flexccl"
    one_gpu, jit = replace(job, devices=1), replace(job, protect="jit")
    assert not any(map(replays_all, (shared, options(), one_gpu, jit)))
    monkeypatch.setenv("PYFT_COLLECTIVES", "flexccl")
    assert not replays_all(job)
    monkeypatch.setenv("PYFT_REPLAY", "all")
    assert replays_all(options())
    monkeypatch.setenv("PYFT_REPLAY", "one")
    monkeypatch.delenv("PYFT_COLLECTIVES")
    assert not replays_all(job)


def test_a_rank_of_several_hosts_is_replaced_alone_where_flexccl_connects_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYFT_REPLAY", "PYFT_COLLECTIVES"):
        monkeypatch.delenv(name, raising=False)
    places = replace(options(), head="10.0.0.1:1", movable=True)
    assert not replays_all(places)
    assert replays_all(replace(places, head=""))  # images of one host are of a line of all ranks
    assert replays_all(replace(places, dmr="checkpoint"))
    assert replays_all(
        replace(places, devices=1, real_gpus=tuple(UUIDS[:1]))
    )  # NCCL, between hosts
    monkeypatch.setenv("PYFT_REPLAY", "one")
    check_protection(places)
    with pytest.raises(UsageError, match="leave PYFT_REPLAY=one away"):
        check_protection(replace(places, head=""))


def test_a_place_that_moves_replays_as_its_image_does(monkeypatch: pytest.MonkeyPatch) -> None:
    places = replace(options(), head="10.0.0.1:1", movable=True)
    for asked in ("one", "all"):
        monkeypatch.setenv("PYFT_REPLAY", asked)
        carried = places.of_the_job()["replay"]
        monkeypatch.delenv("PYFT_REPLAY")
        moved = replace(places, replay=carried)
        arguments = ["--supervisor-fd", "3", *moved.to_arguments()]
        assert replays_all(JobOptions.from_arguments(arguments)[0]) == (asked == "all")


def test_a_replacement_loads_kernels_before_nccl_kernels_spin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYFT_REPLAY", "PYFT_COLLECTIVES"):
        monkeypatch.delenv(name, raising=False)
    job, name = options(real=tuple(UUIDS)), "CUDA_MODULE_LOADING"

    def loading(job: JobOptions, **client: str) -> str | None:
        return of_replacement(server_environment(job, client, 0, 0, 2)).get(name)

    assert loading(job) == "EAGER"
    assert loading(job, CUDA_MODULE_LOADING="LAZY") == "LAZY", "what the user sets holds"
    assert name not in server_environment(job, {}, 0, 0, 2), "a first server loads as ever"
    shared, alone = options(real=("GPU-a", "GPU-a")), replace(job, devices=1)
    for other in (shared, alone, options()):  # no kernel of NCCL spins there
        assert loading(other) is None
    assert "SOFTGPU_FAULT" not in of_replacement({"SOFTGPU_FAULT": "hang:3"}), "no fault twice"


def test_the_blas_of_a_soft_gpu_starts_no_threads_of_its_own_accord() -> None:
    client = {"OPENBLAS_NUM_THREADS": "64"}
    assert server_environment(options(), client, 0, 0, 1)["OPENBLAS_NUM_THREADS"] == "1"
    got = server_environment(options(real=tuple(UUIDS)), client, 0, 0, 3)
    assert got["OPENBLAS_NUM_THREADS"] == "64"


def test_programs_see_real_gpus_by_their_names() -> None:
    proxied = program_environment(options(real=tuple(UUIDS)), {}, "agent")
    assert proxied["PYFT_GPUS"] == "GPU-aa,GPU-bb"
    assert "libpyft_shim.so" in proxied["LD_PRELOAD"]
    direct = program_environment(options(direct=True, real=tuple(UUIDS)), {}, "agent")
    assert direct["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-bb"
    assert "LD_PRELOAD" not in direct
    assert "SOFTGPU_DEVICES" not in direct
    assert program_environment(options(), {}, "agent")["PYFT_GPUS"] == "soft:2"
    assert program_environment(options(), {}, "agent")["TORCH_LINALG_PREFER_CUSOLVER"] == "1"
    assert "TORCH_LINALG_PREFER_CUSOLVER" not in proxied


def test_the_program_sees_all_gpus_of_its_job() -> None:
    """Also where the variable names GPUs of the machine, whose numbers the job does not have."""
    hidden = {"CUDA_VISIBLE_DEVICES": "GPU-bb,GPU-cc"}
    assert "CUDA_VISIBLE_DEVICES" not in program_environment(options(real=("G",)), hidden, "a")
    assert program_environment(options(), hidden, "a")["CUDA_VISIBLE_DEVICES"] == "GPU-bb,GPU-cc"


def test_ranks_without_servers_share_a_secret_too() -> None:
    own = [program_environment(options(direct=True), {}, "name")["FLEXCCL_JOB_TOKEN"] for _ in "ab"]
    assert own[0] != own[1]
    users = program_environment(options(direct=True), {"FLEXCCL_JOB_TOKEN": "x"}, "name")
    assert users["FLEXCCL_JOB_TOKEN"] == "x"
    assert "FLEXCCL_JOB_TOKEN" not in program_environment(options(), {}, "name")
