"""What following a script asks of the native module, as a Protocol so that tests can fake it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

ValuePolicy = Callable[[str, str, Any, int, int], "bool | int | float"]
"""policy(kind, producer, dtype, numel, reads) → the value an unknown read is answered with."""


class ScriptNative(Protocol):
    """The part of the compiled backend that this package calls (`maya.emulator.backend.load()`)."""

    def recording(self, enabled: bool, /) -> object:
        """Start or stop recording operations."""
        ...

    def mark(self, operator: str, metadata_json: str, /) -> object:
        """Record a `Kind.MARKER` operation."""
        ...

    def next_operation_id(self, /) -> int:
        """The id that the next recorded operation gets."""
        ...

    def module_id(self, path: str, /) -> int:
        """Intern a module path."""
        ...

    def enter_module(self, module: int, /) -> object:
        """Operations of this thread belong to `module` until the matching `leave_module`."""
        ...

    def leave_module(self, /) -> object:
        """Undo this thread's last `enter_module`."""
        ...

    def set_phase(self, phase: int, /) -> int:
        """Override this thread's phase (-1: automatic); returns the previous override."""
        ...

    def bind_parameter(self, tensor: Any, module: int, /) -> object:
        """Gradient accumulation of `tensor` belongs to `module`."""
        ...

    def source_line(self, /) -> str:
        """`file:line` of the innermost frame of the user's code; empty if there is none."""
        ...

    def set_value_policy(self, policy: ValuePolicy | None, /) -> object:
        """Who answers when the script reads a value that was never computed."""
        ...

    def storage_is_known(self, storage_cdata: int, /) -> bool:
        """Whether a device storage's values are real or one known constant."""
        ...

    def record_storage_to_host(self, storage_cdata: int, /) -> object:
        """Record the copy of a device storage to the host, without performing it."""
        ...
