"""Train GPT-2, BERT-base and T5-small of `transformers` with random weights; print losses and hashes.

hugging_face.py STEPS [SHARE]    SHARE: a divisor of layers and widths, for slow devices
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import transformers
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
from example_support import parameters_sha256, print_line

VOCABULARY, LENGTH, BATCH = 1024, 64, 4


def models(share: int) -> dict[str, nn.Module]:
    """Make the models from configurations: nothing is downloaded."""
    width, layers = 768 // share, max(1, 12 // share)
    heads = max(1, width // 64)
    gpt2 = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=width, n_layer=layers, n_head=heads
    )
    bert = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    t5 = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=512 // share,
        d_ff=2048 // share,
        num_layers=max(1, 6 // share),
        num_heads=8 // min(share, 4),
        d_kv=64,
        decoder_start_token_id=0,
    )
    return {
        "gpt2": transformers.GPT2LMHeadModel(gpt2),
        "bert-base": transformers.BertForMaskedLM(bert),
        "t5-small": transformers.T5ForConditionalGeneration(t5),
    }


def main() -> None:
    steps, share = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    for name, model in models(share).items():
        model = model.to("cuda").train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for step in range(1, steps + 1):
            tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator).to("cuda")
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print_line(f"{name} step={step} loss={loss.item()!r}")
        print_line(f"{name} params_sha256={parameters_sha256(model)}")


if __name__ == "__main__":
    main()
