"""The emulated `nccl` process group behind `torch.distributed`."""

from maya.emulator.torch_distributed.install import install

__all__ = ["install"]
