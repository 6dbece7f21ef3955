"""Train a ResNet-50 v1.5 on random images: `python resnet50_train.py [--batch 256] [--amp]`.

What `first_rows.py` runs under Maya. Version 1.5 has its stride in the 3x3 convolution. With
`--amp`: float16 autocast, GradScaler and channels-last, as NVIDIA's recipe does. Like theirs it uses SGD
without weight decay on norms (PyTorch of 2021 had one kernel for each operation and parameter:
`foreach=False`), label smoothing, and waits for the GPU and reads the loss after every step. Started by
torchrun (or `maya run --nproc-per-node`) it is data parallel.
"""

import argparse
import os

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + kept)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    layout = torch.channels_last if args.amp else torch.contiguous_format
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    net = resnet50().to(device).to(memory_format=layout)
    if ranks > 1:
        torch.distributed.init_process_group("nccl")
        net = nn.parallel.DistributedDataParallel(net, device_ids=[device.index])
    decayed = [p for p in net.parameters() if p.dim() > 1]
    plain = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 3e-5}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.875, foreach=False)
    scaler = torch.amp.GradScaler(enabled=args.amp)
    images = torch.randn(args.batch, 3, 224, 224, device=device).to(memory_format=layout)
    labels = torch.randint(1000, (args.batch,), device=device)
    for _ in range(args.steps):
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
            loss = nn.functional.cross_entropy(net(images), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        loss.item()


if __name__ == "__main__":
    main()
