"""The compiled part of the emulated device: built for the torch in the environment, at first use."""

from maya.emulator.backend.cache import cached_builds, clear_builds
from maya.emulator.backend.compiler import Compiler, find_compiler
from maya.emulator.backend.library import load

__all__ = ["Compiler", "cached_builds", "clear_builds", "find_compiler", "load"]
