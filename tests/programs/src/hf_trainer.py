"""Hugging Face's Trainer, with a small model of the family that is named.

python hf_trainer.py gpt2|llama|bert|t5|vit|mamba|mixtral
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import signature
import torch
import transformers as hf

STEPS, BATCH, LENGTH, WORDS = 4, 2, 16, 96
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "vocab_size": WORDS}
FAMILIES: dict[str, Any] = {
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=WORDS, n_positions=64)
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, **HEADS, num_key_value_heads=1)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL, **HEADS)),
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(
            d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, vocab_size=WORDS,
            decoder_start_token_id=0,
        )
    ),
    "vit": lambda: hf.ViTForImageClassification(
        hf.ViTConfig(**SMALL, num_attention_heads=2, image_size=16, patch_size=4, num_labels=4)
    ),
    "mamba": lambda: hf.MambaForCausalLM(
        hf.MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=WORDS, state_size=4)
    ),
    "mixtral": lambda: hf.MixtralForCausalLM(
        hf.MixtralConfig(
            **SMALL, **HEADS, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2
        )
    ),
}  # fmt: skip


def examples(family: str) -> list[dict[str, torch.Tensor]]:
    """Return the data: words or pictures that a seed gives."""
    dice = torch.Generator().manual_seed(7)
    found = []
    for number in range(STEPS * BATCH):
        if family == "vit":
            picture = torch.rand(3, 16, 16, generator=dice)
            found.append({"pixel_values": picture, "labels": torch.tensor(number % 4)})
        else:
            words = torch.randint(1, WORDS, (LENGTH,), generator=dice)
            found.append({"input_ids": words, "labels": words.clone()})
    return found


class Losses(hf.TrainerCallback):
    """Prints each loss. Trainer's own log rounds them."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            signature.loss(logs["loss"])


def main() -> None:
    family = sys.argv[1]
    hf.set_seed(1)
    model = FAMILIES[family]()
    with tempfile.TemporaryDirectory() as folder:
        options = hf.TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            learning_rate=1e-3,
        )
        trainer = hf.Trainer(
            model=model, args=options, train_dataset=examples(family), callbacks=[Losses()]
        )
        trainer.train()
    if family == "gpt2":
        prompt = torch.tensor([[1, 2, 3]], device="cuda")
        words = model.generate(prompt, max_new_tokens=6, do_sample=True, pad_token_id=0)
        print(f"rank=0 sha256=words-{words.tolist()}")
    signature.state(trainer.model, trainer.optimizer)


if __name__ == "__main__":
    main()
