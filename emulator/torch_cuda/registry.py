"""What the device has put into torch, and what was there before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from maya.errors import MayaError


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT = _Absent()
"""Marks a name that did not exist before it was added."""


@dataclass
class Registry:
    """Every name set in torch and every module put in place of another."""

    changes: list[tuple[Any, str, Any]] = field(default_factory=list)
    """(owner, name, what was there or ABSENT), in order."""
    modules: dict[str, Any] = field(default_factory=dict)
    """Name in `sys.modules` -> the module that was there, or None."""

    def replace(self, owner: Any, name: str, value: Any) -> Any:
        """Sets a name that must exist; gives what it was.

        Raises:
            MayaError: this version of torch has no such name, so the device would not work.
        """
        if not hasattr(owner, name):
            raise MayaError(
                f"torch {torch.__version__} has no {_label(owner)}.{name}, which the emulated CUDA device "
                "replaces",
                hint="Use a version of torch that Maya supports (2.13 or 2.14), or a newer Maya.",
            )
        return self.add(owner, name, value)

    def add(self, owner: Any, name: str, value: Any) -> Any:
        """Sets a name that may or may not exist; gives what it was, or ABSENT."""
        before = vars(owner).get(name, ABSENT)
        self.changes.append((owner, name, before))
        setattr(owner, name, value)
        return before


def _label(owner: Any) -> str:
    name = getattr(owner, "__name__", repr(owner))
    module = getattr(owner, "__module__", None)
    return f"{module}.{name}" if module else str(name)
