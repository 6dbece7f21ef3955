"""The Python side of the emulated CUDA device: what `torch.cuda` and `pynvml` answer."""

from maya.emulator.torch_cuda.device import DriverVersions
from maya.emulator.torch_cuda.install import install_torch_cuda
from maya.emulator.torch_cuda.registry import Registry

__all__ = ["DriverVersions", "Registry", "install_torch_cuda"]
