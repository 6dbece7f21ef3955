"""Train ResNet-50 v1.5 on a folder of images, or on random ones.

    python train_resnet50.py --amp                           # random images, one GPU
    torchrun --nproc-per-node 8 train_resnet50.py --amp --data imagenet/train
    python train_resnet50.py --device cpu --blocks 1 1 1 1 --width 16 --image-size 32 \
        --classes 10 --batch-size 16 --steps 20              # a few seconds on any machine

A folder holds one folder a class; images are .npy (height x width x 3, uint8), .ppm (P6), or anything
Pillow reads where that is installed. `--make-sample DIR` writes a small one of the first two kinds.
"""

import argparse
import itertools
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride: version 1.5) and 1x1 convolutions around a shortcut."""

    def __init__(self, channels, width, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += identity
        return self.relu(x)


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3), width=64, classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = width
        layers = []
        for stage, depth in enumerate(blocks):
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(channels, width * 2**stage, stride))
                channels = 4 * width * 2**stage
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck):
                nn.init.zeros_(module.bn3.weight)  # every block starts as the identity

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.avgpool(self.layers(x)).flatten(1))


def read_image(path):
    """uint8 pixels, height x width x 3."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".ppm":
        magic, width, height, largest, pixels = path.read_bytes().split(maxsplit=4)
        if magic != b"P6" or largest != b"255":
            raise ValueError(f"{path} is not an 8-bit colour PPM")
        return np.frombuffer(pixels, np.uint8).reshape(int(height), int(width), 3)
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))


class ImageFolder(Dataset):
    """`root/class/image`; random crops and flips, as normalised float32."""

    def __init__(self, root, size):
        self.classes = sorted(folder.name for folder in Path(root).iterdir() if folder.is_dir())
        self.images = []
        for label, name in enumerate(self.classes):
            self.images += [(path, label) for path in sorted((Path(root) / name).iterdir())]
        self.size = size

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        path, label = self.images[index]
        image = torch.tensor(read_image(path)).permute(2, 0, 1).float().div_(255).sub_(MEAN).div_(STD)
        # A crop of 8% to 100% of the area, as Inception's.
        height, width = image.shape[1:]
        share = float(torch.empty(()).uniform_(0.08, 1.0)) ** 0.5
        rows, columns = max(1, int(height * share)), max(1, int(width * share))
        top = int(torch.randint(height - rows + 1, ()))
        left = int(torch.randint(width - columns + 1, ()))
        image = image[:, top : top + rows, left : left + columns]
        image = F.interpolate(image[None], (self.size, self.size), mode="bilinear", antialias=True)[0]
        return image.flip(2) if torch.rand(()) < 0.5 else image, label


def make_sample(root, images=16, size=40):
    """Images whose colour tells their class."""
    generator = np.random.default_rng(0)
    for label in range(2):
        folder = root / f"class{label}"
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(images):
            pixels = generator.integers(0, 96, (size, size, 3), dtype=np.uint8)
            pixels[..., label % 3] += 128
            if index % 2:
                np.save(folder / f"{index}.npy", pixels)
            else:
                (folder / f"{index}.ppm").write_bytes(b"P6 %d %d 255\n" % (size, size) + pixels.tobytes())


def make_optimizer(model, learning_rate, momentum, weight_decay):
    """No weight decay on batch norms and biases."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=True)


def make_schedule(optimizer, kind, warmup_steps, steps):
    def factor(step):
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = (step - warmup_steps) / max(1, steps - warmup_steps)
        if kind == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        return 0.1 ** int(3 * progress)  # after a third and two thirds of the way

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def random_batches(batch_size, size, classes, device, layout):
    """The same images every step, on the device from the start."""
    images = torch.randn(batch_size, 3, size, size, device=device).to(memory_format=layout)
    labels = torch.randint(classes, (batch_size,), device=device)
    while True:
        yield images, labels


def folder_batches(loader, device, layout):
    for epoch in itertools.count():
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            images = images.to(device, non_blocking=True, memory_format=layout)
            yield images, labels.to(device, non_blocking=True)


def make_folder_batches(args, device, layout, world_size):
    dataset = ImageFolder(args.data, args.image_size)
    sampler = DistributedSampler(dataset, drop_last=True) if world_size > 1 else None
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
        raise SystemExit(f"{args.data}: {len(dataset)} images are fewer than a batch of {args.batch_size}")
    return folder_batches(loader, device, layout), len(dataset.classes)


def save_checkpoint(path, step, model, optimizer, scaler):
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"step": step, **state}, path.with_suffix(".partial"))
    path.with_suffix(".partial").replace(path)
    print(f"saved {path}")


def parse_arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = __doc__
    parser.add_argument("--data", type=Path, help="folder of images; random ones if not given")
    parser.add_argument("--make-sample", type=Path, metavar="DIR", help="write a small folder and exit")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--amp", action="store_true", help="mixed precision; float16 on a GPU")
    parser.add_argument("--tf32", action="store_true", help="TensorFloat-32 where it is float32")
    parser.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--blocks", type=int, nargs=4, default=(3, 4, 6, 3))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000, help="of random images")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=128, help="images a GPU")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.1, help="for 256 images a step")
    parser.add_argument("--schedule", choices=("cosine", "step"), default="cosine")
    parser.add_argument("--warmup-steps", type=int, default=100)
    parser.add_argument("--momentum", type=float, default=0.875)
    parser.add_argument("--weight-decay", type=float, default=3e-5)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--sync-bn", action="store_true", help="batch norm over all GPUs' images")
    parser.add_argument("--workers", type=int, default=4, help="processes that load data")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/resnet50.pt"))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.make_sample:
        make_sample(args.make_sample)
        return
    distributed = "RANK" in os.environ  # started by torchrun
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device(args.device)
    if distributed:
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(args.seed + rank)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    layout = torch.channels_last if args.channels_last else torch.contiguous_format

    if args.data:
        batches, classes = make_folder_batches(args, device, layout, world_size)
    else:
        classes = args.classes
        batches = random_batches(args.batch_size, args.image_size, classes, device, layout)
    model = ResNet(args.blocks, args.width, classes).to(device, memory_format=layout)
    if args.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    learning_rate = args.learning_rate * args.batch_size * world_size / 256
    optimizer = make_optimizer(model, learning_rate, args.momentum, args.weight_decay)
    schedule = make_schedule(optimizer, args.schedule, args.warmup_steps, args.steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    # float16 needs its losses scaled; on a CPU mixed precision is bfloat16, which does not.
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp and device.type == "cuda")
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    net = model
    if distributed:
        net = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"{count / 1e6:.1f}M parameters, {classes} classes, {world_size} x {device}")

    net.train()
    begin = time.perf_counter()
    for step in range(args.steps):
        images, labels = next(batches)
        with torch.autocast(device.type, dtype=half, enabled=args.amp):
            loss = criterion(net(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        if step % args.log_every == 0 or step == args.steps - 1:
            loss_value = loss.item()
            rate = args.batch_size * world_size * (step + 1) / (time.perf_counter() - begin)
            if rank == 0:
                print(f"step {step:5d}  loss {loss_value:.4f}  {rate:,.0f} images/s", flush=True)
    if rank == 0:
        save_checkpoint(args.checkpoint, args.steps, model, optimizer, scaler)
        if device.type == "cuda":
            print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
