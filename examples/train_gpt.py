"""Train a GPT-2-sized language model on the bytes of a text file.

    python train_gpt.py                              # GPT-2-124M on one GPU
    torchrun --nproc-per-node 8 train_gpt.py         # on eight, each with its own batches
    python train_gpt.py --device cpu --layers 2 --heads 2 --width 64 --block-size 64 \
        --batch-size 2 --steps 5                     # a few seconds on any machine
"""

import argparse
import contextlib
import itertools
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TextWindows(Dataset):
    """Windows of `block_size` bytes and the bytes that follow each of them."""

    def __init__(self, path, block_size, stride=16):
        data = Path(path).read_bytes()
        if len(data) <= block_size:
            raise ValueError(f"{path} has {len(data)} bytes, too few for windows of {block_size}")
        self.tokens = torch.tensor(list(data), dtype=torch.long)
        self.block_size = block_size
        self.stride = stride

    def __len__(self):
        return (len(self.tokens) - self.block_size - 1) // self.stride + 1

    def __getitem__(self, index):
        begin = index * self.stride
        window = self.tokens[begin : begin + self.block_size + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.proj(F.gelu(self.fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, layers, heads, width):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, width)
        self.wpe = nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Residual projections start smaller, so that depth does not grow the activations.
                scale = (2 * layers) ** -0.5 if name.endswith("proj.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        return logits, loss


def make_optimizer(model, learning_rate, weight_decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def make_schedule(optimizer, warmup_steps, steps):
    """Linear warm-up, then a cosine down to a tenth."""

    def factor(step):
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = (step - warmup_steps) / max(1, steps - warmup_steps)
        return 0.1 + 0.45 * (1.0 + math.cos(math.pi * min(1.0, progress)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def endless(loader):
    for epoch in itertools.count():
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        yield from loader


def save_checkpoint(path, step, model, optimizer, schedule):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
    }
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
    print(f"saved {path}")


def main():
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=here / "data" / "public_domain.txt", help="a text file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--vocab-size", type=int, default=50304)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=4, help="micro-batches a step")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2, help="processes that load data")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/gpt.pt"))
    parser.add_argument("--checkpoint-every", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1337)
    args = parser.parse_args()

    distributed = "RANK" in os.environ  # started by torchrun
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device(args.device)
    if distributed:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(args.seed + rank)
    torch.set_float32_matmul_precision("high")

    dataset = TextWindows(args.data, args.block_size)
    sampler = DistributedSampler(dataset, drop_last=True) if distributed else None
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        shuffle=sampler is None,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        persistent_workers=args.workers > 0,
    )
    if len(loader) == 0:
        parser.error(f"{args.data} has {len(dataset)} windows, fewer than a batch of {args.batch_size}")

    model = GPT(args.vocab_size, args.block_size, args.layers, args.heads, args.width).to(device)
    optimizer = make_optimizer(model, args.learning_rate, args.weight_decay)
    schedule = make_schedule(optimizer, args.warmup_steps, args.steps)
    net = model
    if distributed:
        net = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters / 1e6:.1f}M parameters, {len(dataset)} windows, {world_size} x {device}")

    batches = endless(loader)
    tokens_per_step = args.batch_size * args.block_size * args.accumulation * world_size
    model.train()
    for step in range(args.steps):
        # The first one is written before any work is lost to a full disk or a wrong path.
        if rank == 0 and step % args.checkpoint_every == 0:
            save_checkpoint(args.checkpoint, step, model, optimizer, schedule)

        begin = time.perf_counter()
        total_loss = torch.zeros((), device=device)
        for micro_batch in range(args.accumulation):
            tokens, targets = next(batches)
            tokens = tokens.to(device, non_blocking=True)
            targets = targets.to(device, non_blocking=True)
            # Gradients are averaged over the GPUs once a step, with the last micro-batch.
            waits = distributed and micro_batch < args.accumulation - 1
            with net.no_sync() if waits else contextlib.nullcontext():
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    _, loss = net(tokens, targets)
                loss = loss / args.accumulation
                loss.backward()
            total_loss += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)

        if rank == 0 and step % args.log_every == 0:
            loss_value = total_loss.item()
            seconds = time.perf_counter() - begin
            print(
                f"step {step:5d}  loss {loss_value:.4f}  lr {schedule.get_last_lr()[0]:.2e}"
                f"  norm {norm.item():.3f}  {tokens_per_step / seconds:,.0f} tokens/s",
                flush=True,
            )

    if rank == 0:
        save_checkpoint(args.checkpoint, args.steps, model, optimizer, schedule)
        if device.type == "cuda":
            print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
