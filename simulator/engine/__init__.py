"""The general engine: many ranks, streams and copy engines, kernels that slow one another."""

from __future__ import annotations

from maya.simulator.engine.loop import run_general

__all__ = ["run_general"]
