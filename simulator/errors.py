"""What can go wrong between ranks, told apart from damaged input."""

from __future__ import annotations

from maya.errors import MayaError


class CommunicationError(MayaError):
    """Ranks that cannot meet: a deadlock, or members that disagree; names ranks and operations."""
