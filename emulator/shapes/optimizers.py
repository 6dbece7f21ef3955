"""Fused optimizer steps: everything is updated in place, so there is no shape to tell."""

from __future__ import annotations

from typing import Any


def _in_place(*_: Any, **__: Any) -> None:
    return None


SHAPES: dict[str, Any] = dict.fromkeys(
    (
        "_fused_adagrad_",
        "_fused_adagrad_.tensor_lr",
        "_fused_adam_.tensor_lr",
        "_fused_adamw_.tensor_lr",
        "_fused_sgd_",
        "_fused_sgd_.tensor_lr",
    ),
    _in_place,
)
