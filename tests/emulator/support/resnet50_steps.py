"""Prints, as JSON, what a training step of ResNet-50 records on the emulated device, and gradients' strides.

python resnet50_steps.py float32|channels_last_half
"""

import json
import sys

import torch
from recorded_operators import record
from resnet50 import ResNet50
from torch.nn import functional

BATCH, CLASSES, IMAGE = 32, 1000, 224


def float32_step():
    """As in the recorded run: class probabilities as targets, SGD with momentum and no weight decay."""
    model = ResNet50(CLASSES).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    images = torch.randn(BATCH, 3, IMAGE, IMAGE, device="cuda")
    targets = torch.randn(BATCH, CLASSES, device="cuda").softmax(dim=1)

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(model(images), targets).backward()
        optimizer.step()

    return model, step


def channels_last_half_step():
    """Mixed precision as NVIDIA's and PyTorch's examples do it: fp16 autocast, GradScaler, channels-last."""
    model = ResNet50(CLASSES).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
    scaler = torch.amp.GradScaler("cuda")
    images = torch.randn(BATCH, 3, IMAGE, IMAGE, device="cuda").to(memory_format=torch.channels_last)
    targets = torch.randint(CLASSES, (BATCH,), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(images), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return model, step


model, step = {"float32": float32_step, "channels_last_half": channels_last_half_step}[sys.argv[1]]()
step()  # the first one makes the momentum buffers
operations = record(step)
gradients = {name: list(parameter.grad.stride()) for name, parameter in model.named_parameters()}
json.dump({"operations": operations, "gradient_strides": gradients}, sys.stdout)
