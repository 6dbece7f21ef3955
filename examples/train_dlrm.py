"""Train a recommendation model: embedding tables, two MLPs and pairwise interactions, on random clicks.

    python train_dlrm.py                                # 8 tables of a million rows, one GPU
    python train_dlrm.py --sparse --optimizer sgd       # gradients hold only the rows that were looked up
    python train_dlrm.py --device cpu --tables 2 --rows 100 --width 16 --bottom 64 --top 64 \
        --batch-size 512 --optimizer adagrad            # a few seconds on any machine
"""

import argparse
import itertools
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class RandomClicks(IterableDataset):
    """Batches of (dense features, indices, offsets, clicks).

    Popular rows are looked up more often. `indices` of all tables are concatenated, `offsets` hold where
    each bag begins, counted from its table's first index: what nn.EmbeddingBag takes.
    """

    def __init__(self, batch_size, dense_features, tables, rows, lookups, seed):
        self.batch_size, self.dense_features = batch_size, dense_features
        self.tables, self.rows, self.lookups, self.seed = tables, rows, lookups, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        generator = torch.Generator().manual_seed(self.seed + (worker.id if worker else 0))
        offsets = (torch.arange(self.batch_size) * self.lookups).repeat(self.tables, 1)
        while True:
            dense = torch.rand(self.batch_size, self.dense_features, generator=generator)
            shape = (self.tables, self.batch_size * self.lookups)
            indices = (torch.rand(shape, generator=generator) ** 3 * self.rows).long()
            # A click is likelier with a large first feature and with popular rows of the first table.
            rank = indices[0].view(self.batch_size, self.lookups).float().mean(1) / self.rows
            chance = torch.sigmoid(10 * (dense[:, 0] - 0.5) + 10 * (0.25 - rank))
            clicks = torch.bernoulli(chance, generator=generator)
            yield dense, indices, offsets, clicks


def mlp(sizes, last):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    layers[-1] = last
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    def __init__(self, dense_features, tables, rows, width, bottom, top, mode, sparse):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode=mode, sparse=sparse) for _ in range(tables)
        )
        for table in self.tables:
            nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)
        self.bottom = mlp([dense_features, *bottom, width], nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = mlp([width + pairs, *top, 1], nn.Identity())
        row, column = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("pair_index", row * (tables + 1) + column, persistent=False)

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        rows = [table(indices[t], offsets[t]) for t, table in enumerate(self.tables)]
        vectors = torch.stack([x, *rows], dim=1)  # [batch, tables + 1, width]
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        pairs = products.index_select(1, self.pair_index)
        return self.top(torch.cat([x, pairs], dim=1)).squeeze(1)


def make_optimizers(model, kind, learning_rate):
    """One for the tables and one for the rest: tables with sparse gradients need their own."""
    tables = list(model.tables.parameters())
    others = [*model.bottom.parameters(), *model.top.parameters()]
    sparse = model.tables[0].sparse
    if kind == "sgd":
        return [torch.optim.SGD(tables, lr=learning_rate), torch.optim.SGD(others, lr=learning_rate)]
    if kind == "adagrad":
        return [
            torch.optim.Adagrad(tables, lr=learning_rate),
            torch.optim.Adagrad(others, lr=learning_rate),
        ]
    for_tables = torch.optim.SparseAdam if sparse else torch.optim.Adam
    return [for_tables(tables, lr=learning_rate), torch.optim.Adam(others, lr=learning_rate)]


def save_checkpoint(path, step, model, optimizers):
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"step": step, "model": model.state_dict()}
    state["optimizers"] = [optimizer.state_dict() for optimizer in optimizers]
    torch.save(state, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)
    print(f"saved {path}")


def parse_arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = __doc__
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of each table")
    parser.add_argument("--width", type=int, default=64, help="of an embedding")
    parser.add_argument("--lookups", type=int, default=20, help="rows in a bag")
    parser.add_argument("--mode", choices=("sum", "mean"), default="sum")
    parser.add_argument("--dense-features", type=int, default=13)
    parser.add_argument("--bottom", type=int, nargs="*", default=(512, 256), help="hidden widths")
    parser.add_argument("--top", type=int, nargs="*", default=(512, 512, 256), help="hidden widths")
    parser.add_argument("--sparse", action="store_true", help="sparse gradients of the tables")
    parser.add_argument("--optimizer", choices=("sgd", "adagrad", "adam"), default="sgd")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2, help="processes that make data")
    parser.add_argument("--tf32", action="store_true", help="TensorFloat-32 in the MLPs")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, help="where the trained model goes, if anywhere")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    device = torch.device(args.device)
    dataset = RandomClicks(
        args.batch_size, args.dense_features, args.tables, args.rows, args.lookups, args.seed
    )
    # The data set makes whole batches.
    loader = DataLoader(dataset, batch_size=None, num_workers=args.workers, pin_memory=device.type == "cuda")
    with device:
        model = DLRM(
            args.dense_features,
            args.tables,
            args.rows,
            args.width,
            args.bottom,
            args.top,
            args.mode,
            args.sparse,
        )
    optimizers = make_optimizers(model, args.optimizer, args.learning_rate)
    criterion = nn.BCEWithLogitsLoss()
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.1f}M parameters, {args.tables} tables, device {device}")

    begin = time.perf_counter()
    for step, batch in zip(range(args.steps), loader, strict=False):
        dense, indices, offsets, clicks = (part.to(device, non_blocking=True) for part in batch)
        loss = criterion(model(dense, indices, offsets), clicks)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % args.log_every == 0 or step == args.steps - 1:
            loss_value = loss.item()
            rate = args.batch_size * (step + 1) / (time.perf_counter() - begin)
            print(f"step {step:5d}  loss {loss_value:.4f}  {rate:,.0f} samples/s", flush=True)

    if args.checkpoint:
        save_checkpoint(args.checkpoint, args.steps, model, optimizers)
    if device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
