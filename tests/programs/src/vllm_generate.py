"""vLLM: a small Llama with random weights goes on with some words, each with its likelihood."""

from __future__ import annotations

import tempfile

import signature
import transformers as hf
import vllm

WORDS = 96


def main() -> None:
    hf.set_seed(1)
    settings = hf.LlamaConfig(
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=WORDS,
        max_position_embeddings=64,
        dtype="float16",
    )
    with tempfile.TemporaryDirectory() as folder:
        hf.LlamaForCausalLM(settings).half().save_pretrained(folder)
        model = vllm.LLM(
            folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float16",
            max_model_len=64,
            # A soft GPU takes its time: it has to try no more tokens at once than it gets.
            max_num_batched_tokens=64,
            max_num_seqs=2,
            kv_cache_memory_bytes=4 << 20,
        )
        how = vllm.SamplingParams(max_tokens=8, temperature=0.0, logprobs=0, detokenize=False)
        (answer,) = model.generate([{"prompt_token_ids": [1, 2, 3]}], how, use_tqdm=False)
        said = answer.outputs[0]
        for word, likely in zip(said.token_ids, said.logprobs, strict=True):
            signature.loss(likely[word].logprob)
        print(f"rank=0 sha256=words-{list(said.token_ids)}", flush=True)


if __name__ == "__main__":
    main()
