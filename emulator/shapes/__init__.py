"""Output shapes of operators for which torch has no meta kernel."""

from maya.emulator.shapes.registration import register_missing_shapes

__all__ = ["register_missing_shapes"]
