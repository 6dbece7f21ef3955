"""Fine-tune BERT-large for question answering on random text: `python bert_squad_train.py --batch 32 --fp16`.

What `first_rows.py` runs under Maya for NVIDIA's DeepLearningExamples rows. The model has unfused attention
(products, scale, mask, softmax, dropout), erf-GELU and layer norm, as theirs. With `--fp16` it trains as
apex's amp level O2 does: the whole model in half precision, float32 master weights, a dynamic loss scale,
gradients clipped by their global norm, a fused Adam on the masters. Without, its Adam is unfused, as theirs.
GELU is PyTorch's own kernel, forward and backward; with `--scripted-gelu` it is a function of six operations
under `torch.jit.script`, as theirs, which a fuser may or may not merge (Maya records it unmerged). Started
by torchrun (or `maya run --nproc-per-node`) it is data parallel.
"""

import argparse
import math
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset


@torch.jit.script
def scripted_gelu(bias, x):
    x = bias + x
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


class SelfAttention(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def split(self, x):
        return x.view(*x.shape[:-1], self.heads, self.size).transpose(1, 2)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.size)
        weights = self.dropout(torch.softmax(scores + mask, dim=-1))
        mixed = torch.matmul(weights, value).transpose(1, 2).contiguous()
        return mixed.view(x.shape)


class Layer(nn.Module):
    def __init__(self, hidden, heads, inner, dropout, scripted):
        super().__init__()
        self.scripted = scripted
        self.attention = SelfAttention(hidden, heads, dropout)
        self.mix = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.widen = nn.Linear(hidden, inner)
        self.gelu = nn.GELU()
        self.narrow = nn.Linear(inner, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        x = self.attention_norm(self.dropout(self.mix(self.attention(x, mask))) + x)
        if self.scripted:
            inner = scripted_gelu(self.widen.bias, nn.functional.linear(x, self.widen.weight))
        else:
            inner = self.gelu(self.widen(x))
        return self.norm(self.dropout(self.narrow(inner)) + x)


class Questions(nn.Module):
    """BERT with a start and an end logit for each token."""

    def __init__(self, scripted, layers=24, hidden=1024, heads=16, words=30528, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(words, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(hidden, heads, 4 * hidden, dropout, scripted) for _ in range(layers)
        )
        self.outputs = nn.Linear(hidden, 2)

    def forward(self, ids, segments, mask):
        positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0).expand_as(ids)
        x = self.words(ids) + self.positions(positions) + self.segments(segments)
        x = self.dropout(self.norm(x))
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10_000.0
        for layer in self.layers:
            x = layer(x, added)
        start, end = self.outputs(x).split(1, dim=-1)
        return start.squeeze(-1), end.squeeze(-1)


class MasterWeights:
    """Float32 copies of half-precision parameters, with a dynamic loss scale (apex amp, level O2)."""

    def __init__(self, parameters):
        self.model = list(parameters)
        self.masters = [p.detach().float().requires_grad_() for p in self.model]
        for master in self.masters:
            master.grad = torch.empty_like(master)
        self.scale, self.good_steps = 2.0**16, 0

    def take_gradients(self):
        """Copy the model's gradients, unscale and clip them; False if one of them is not finite."""
        gradients = [master.grad for master in self.masters]
        torch._foreach_copy_(gradients, [p.grad for p in self.model])
        norm = torch.stack(torch._foreach_norm(gradients)).norm().item() / self.scale
        if not math.isfinite(norm):
            self.scale, self.good_steps = self.scale / 2, 0
            return False
        torch._foreach_mul_(gradients, min(1.0, 1.0 / max(norm, 1e-6)) / self.scale)
        self.good_steps += 1
        if self.good_steps == 2000:
            self.scale, self.good_steps = self.scale * 2, 0
        return True

    def give_back(self):
        with torch.no_grad():
            torch._foreach_copy_(self.model, self.masters)


class UnfusedAdam(torch.optim.Optimizer):
    """Adam without bias correction, a handful of kernels for each parameter, as the float32 recipe has it."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        torch.stack(torch._foreach_norm(gradients)).norm().item()
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["first"], state["second"] = torch.zeros_like(p), torch.zeros_like(p)
                first, second = state["first"], state["second"]
                first.mul_(0.9).add_(p.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = first / (second.sqrt() + 1e-6)
                if group["weight_decay"]:
                    update += group["weight_decay"] * p
                p.add_(-(group["lr"] * update))


def batches(size, length, device, ranks):
    """Random questions and answers, forever, through a loader in the training process, as theirs."""
    ids = torch.randint(30522, (64 * size, length))
    mask, segments = torch.ones_like(ids), torch.zeros_like(ids)
    starts, ends = torch.randint(length, (2, len(ids)))
    data = TensorDataset(ids, segments, mask, starts, ends)
    sampler = DistributedSampler(data) if ranks > 1 else RandomSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=size)
    while True:
        for batch in loader:
            yield [tensor.to(device) for tensor in batch]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--scripted-gelu", action="store_true")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if ranks > 1:
        torch.distributed.init_process_group("nccl")
    net = Questions(args.scripted_gelu).to(device)
    if args.fp16:
        net.half()
    weights = MasterWeights(net.parameters()) if args.fp16 else None
    trained = list(net.parameters()) if weights is None else weights.masters
    model = nn.parallel.DistributedDataParallel(net, device_ids=[device.index]) if ranks > 1 else net
    decayed = [p for p in trained if p.dim() > 1]
    plain = [p for p in trained if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = UnfusedAdam(groups, 3e-5) if weights is None else torch.optim.AdamW(groups, 3e-5, fused=True)
    for _, batch in zip(range(args.steps), batches(args.batch, args.length, device, ranks), strict=False):
        ids, segments, mask, starts, ends = batch
        first, last = model(ids, segments, mask)
        loss = nn.functional.cross_entropy(first.float(), starts)
        loss = (loss + nn.functional.cross_entropy(last.float(), ends)) / 2
        (loss * (weights.scale if weights else 1.0)).backward()
        if weights is None:
            optimizer.step()
        elif weights.take_gradients():
            optimizer.step()
            weights.give_back()
        for p in net.parameters():
            p.grad = None
        loss.item()


if __name__ == "__main__":
    main()
