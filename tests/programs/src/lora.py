"""peft: LoRA on a Llama, with autocast and activation checkpointing; merged at the end."""

from __future__ import annotations

import peft
import signature
import torch
import transformers as hf

STEPS, WORDS = 4, 96


def main() -> None:
    hf.set_seed(1)
    settings = hf.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=WORDS,
    )
    base = hf.LlamaForCausalLM(settings)
    base.gradient_checkpointing_enable()
    base.enable_input_require_grads()
    adapter = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(base, adapter).cuda()
    model.train()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    for step in range(STEPS):
        dice = torch.Generator().manual_seed(step)
        words = torch.randint(0, WORDS, (2, 16), generator=dice).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        signature.loss(loss.detach())
    signature.state(model, optimizer)
    signature.state(model.merge_and_unload())


if __name__ == "__main__":
    main()
