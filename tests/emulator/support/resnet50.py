"""ResNet-50 as torchvision lays it out, for tests that compare operators with recordings of it.

He et al., "Deep Residual Learning for Image Recognition" (2015), with the stride of a bottleneck in its
3x3 convolution, as torchvision has it ("ResNet v1.5"). Same modules, names and parameter order as
torchvision's, so that optimizers and reducers meet the parameters in the same order.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EXPANSION = 4
"""Channels that leave a bottleneck, in multiples of those inside it."""
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Bottlenecks, inner channels and first stride of layer1 to layer4 of the 50-layer network."""


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolution around a shortcut.

    Args:
        channels_in: channels of the input.
        channels: channels inside; `EXPANSION` times as many come out.
        stride: of the 3x3 convolution, and of the shortcut's.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = channels * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or channels_in != channels_out:
            shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        if self.downsample is not None:
            shortcut = self.downsample(x)
        y += shortcut
        return self.relu(y)


class ResNet50(nn.Module):
    """[batch, 3, height, width] → [batch, classes]."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels_in = 64
        for number, (depth, channels, stride) in enumerate(STAGES, start=1):
            blocks = []
            for index in range(depth):
                blocks.append(Bottleneck(channels_in, channels, stride if index == 0 else 1))
                channels_in = channels * EXPANSION
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels_in, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))
