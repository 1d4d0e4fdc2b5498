"""The programs, how each is started, and where its faults come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{ranks}")
ACCELERATE = (
    *("-m", "accelerate.commands.launch", "--num_machines", "1", "--dynamo_backend", "no"),
    *("--num_processes", "{ranks}", "--main_process_port", "0"),
)
DEEPSPEED = (
    *("-m", "deepspeed.launcher.runner", "--num_gpus", "{ranks}"),
    *("--master_port", "{port}", "--no_local_rank"),
)

VLLM = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Inductor measures times at the start, with so many launches as it takes: no place of a fault
    # would be the same in two runs.
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True)
class Program:
    """One of them."""

    name: str
    text: str  # for people
    words: tuple[str, ...]  # script of src/ and its arguments
    packages: tuple[str, ...] = ("torch",)  # whose versions the page states
    ranks: int = 1
    launcher: tuple[str, ...] = ()  # what the Python gets before the script
    place: str = "step=2"  # of the faults, behind their rank
    lost_place: str = ""  # of the lost GPU, if it is another one: its `call` counts launches
    pins: str = "requirements.txt"  # a file of packages of its own gets an environment of its own
    # More of the environment; {shared} is a folder that all of its runs see.
    settings: Mapping[str, str] = field(default_factory=dict)


def _families() -> tuple[Program, ...]:
    names = ("gpt2", "llama", "bert", "t5", "vit", "mamba", "mixtral")
    package = ("transformers", "accelerate")
    return tuple(
        Program(f"trainer-{name}", f"Trainer, {text}", ("hf_trainer.py", name), package)
        for name, text in zip(
            names,
            (
                "GPT-2, and `generate`",
                "Llama",
                "BERT",
                "T5",
                "ViT",
                "Mamba without its own kernels",
                "Mixtral, a mixture of experts",
            ),
            strict=True,
        )
    )


def _shared(way: str, text: str, ranks: int = 2) -> Program:
    return Program(way, text, ("parallel.py", way), ranks=ranks, launcher=TORCHRUN)


PROGRAMS = (
    *_families(),
    Program(
        "accelerate-ddp",
        "`accelerate launch`, DDP, fp16, accumulation, `save_state`",
        ("accelerated.py",),
        ("accelerate",),
        ranks=2,
        launcher=(*ACCELERATE, "--multi_gpu", "--mixed_precision", "fp16"),
    ),
    Program(
        "accelerate-fsdp",
        "`accelerate launch --use_fsdp`, FSDP2, bf16",
        ("accelerated.py",),
        ("accelerate",),
        ranks=2,
        launcher=(
            *ACCELERATE,
            *("--use_fsdp", "--fsdp_version", "2", "--mixed_precision", "bf16"),
            *("--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
            *("--fsdp_transformer_layer_cls_to_wrap", "Block"),
        ),
    ),
    Program(
        "lightning-ddp",
        "Trainer, DDP, its own launcher",
        ("lightning_gpt.py", "ddp"),
        ("lightning",),
        ranks=2,
    ),
    Program(
        "lightning-fsdp",
        "Trainer, FSDP, bf16-mixed, its own launcher",
        ("lightning_gpt.py", "fsdp"),
        ("lightning",),
        ranks=2,
    ),
    Program(
        "deepspeed-1",
        "ZeRO-1, bf16",
        ("zero.py", "1", "bf16"),
        ("deepspeed",),
        ranks=2,
        launcher=TORCHRUN,
    ),
    Program(
        "deepspeed-2",
        "ZeRO-2, fp16, DeepSpeed's launcher",
        ("zero.py", "2", "fp16"),
        ("deepspeed",),
        ranks=2,
        launcher=DEEPSPEED,
    ),
    Program(
        "deepspeed-3",
        "ZeRO-3, bf16",
        ("zero.py", "3", "bf16"),
        ("deepspeed",),
        ranks=2,
        launcher=TORCHRUN,
    ),
    Program(
        "peft-lora",
        "LoRA of a Llama, autocast, activation checkpointing, merged",
        ("lora.py",),
        ("peft", "transformers"),
    ),
    Program(
        "bitsandbytes", "Adam8bit, Linear4bit, Linear8bitLt", ("eight_bits.py",), ("bitsandbytes",)
    ),
    Program("timm", "vision transformer, ConvNeXt", ("vision.py", "timm"), ("timm",)),
    Program(
        "torchvision-resnet", "ResNet, channels last", ("vision.py", "resnet"), ("torchvision",)
    ),
    Program("vae", "variational autoencoder", ("vision.py", "vae")),
    Program("dcgan", "adversaries, two optimizers", ("vision.py", "dcgan")),
    Program(
        "compiled-gpt",
        "as nanoGPT: `torch.compile`, whose choices all runs share, autocast, accumulation",
        ("compiled_gpt.py",),
        ("torch", "triton"),
        # Inductor times several kernels and takes the fastest, which is another one each time. All
        # four runs take what the first has chosen.
        settings={"TORCHINDUCTOR_CACHE_DIR": "{shared}"},
    ),
    Program(
        "ddp-trainer",
        "as minGPT-ddp: DDP, workers, a snapshot, resumed",
        ("ddp_trainer.py",),
        ranks=2,
        launcher=TORCHRUN,
    ),
    Program("cuda-graphs", "a step as a graph, `make_graphed_callables`", ("graphs.py",)),
    _shared("fsdp2", "FSDP2, bf16, sums in fp32"),
    _shared("tp", "tensor parallel"),
    _shared("sequence", "tensor and sequence parallel"),
    _shared("fsdp-tp", "FSDP2 of tensor parallel pairs", ranks=4),
    _shared("pipeline", "`torch.distributed.pipelining`, 1F1B"),
    _shared("context", "context parallel: a ring of attention"),
    _shared("checkpoint", "DCP `async_save`, load, resume"),
    Program(
        "vllm",
        "vLLM generates, with its V1 model runner",
        ("vllm_generate.py",),
        ("vllm", "transformers"),
        place="call=800",  # it has no optimizer, and so no cuts: this is while it generates
        lost_place="call=330",
        pins="requirements-vllm.txt",
        settings={**VLLM, "VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_CACHE_ROOT": "{shared}"},
    ),
)
