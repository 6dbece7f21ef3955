"""Imported by test scripts: puts two emulated H100s into this process's torch."""

from __future__ import annotations

import torch

from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu

cuda_build = torch.version.cuda is not None
gpu = find_gpu("H100-SXM5-80GB")
native = install_device(DeviceSettings(gpu, visible_gpus=2))
