"""Fine-tune a language model of HuggingFace transformers, from its shape, in a plain loop.

    python language_model_training.py llama-3.2-3b --dtype bf16 --batch 4 --length 768 --lora 32

What `memory_cases.py` runs under Maya for reports of training that fitted or ran out of memory.
"""

import argparse

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    GPT2Config,
    LlamaConfig,
    T5Config,
)

CONFIGS = {
    "gpt2-xl": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
    "llama-3.2-3b": LlamaConfig(
        vocab_size=128_256,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=28,
        num_attention_heads=24,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131_072,
        tie_word_embeddings=True,
    ),
    "t5-3b": T5Config(
        d_model=1024, d_ff=16_384, d_kv=128, num_heads=32, num_layers=24, decoder_start_token_id=0
    ),
}


def make_model(args):
    config = CONFIGS[args.model]
    loader = AutoModelForSeq2SeqLM if args.model.startswith("t5") else AutoModelForCausalLM
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    with torch.device("cuda"):
        model = loader.from_config(config, dtype=dtype, attn_implementation=args.attention)
    if args.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=args.lora, target_modules=args.targets))
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=tuple(CONFIGS))
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="of the weights")
    parser.add_argument("--autocast", choices=("fp16", "bf16"))
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--lora", type=int, default=0, help="rank of the adapters")
    parser.add_argument("--targets", nargs="*", default=("q_proj", "v_proj"))
    args = parser.parse_args()
    model = make_model(args)
    model.train()
    half = {"fp16": torch.float16, "bf16": torch.bfloat16, None: torch.float32}[args.autocast]
    scaler = torch.amp.GradScaler("cuda", enabled=args.autocast == "fp16")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5)
    tokens = torch.randint(1, 30_000, (args.batch, args.length), device="cuda")
    for _ in range(1000):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=half, enabled=args.autocast is not None):
            loss = model(input_ids=tokens, labels=tokens).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    main()
