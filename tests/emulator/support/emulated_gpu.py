"""Importing this puts one emulated H100 into the process's torch; `native` drives and observes it."""

from __future__ import annotations

from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu

native = install_device(DeviceSettings(find_gpu("H100-SXM5-80GB")))
