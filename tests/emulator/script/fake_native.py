"""A stand-in for the compiled backend: remembers what the script package tells it."""

from __future__ import annotations

import json
from typing import Any


class FakeNative:
    """Operations are the marks plus whatever `issue` is told of."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, Any]] = []
        self.module_names: list[str] = []
        self.stack: list[str] = []
        self.entered: list[str] = []
        self.phase = -1
        self.is_recording = True
        self.bound: dict[int, str] = {}
        self.policy: Any = None
        self.line = "train.py:1"
        self.copied_storages: list[int] = []

    def recording(self, enabled: bool) -> None:
        self.is_recording = enabled

    def mark(self, operator: str, metadata_json: str) -> None:
        metadata = json.loads(metadata_json)
        assert isinstance(metadata["args"], dict)
        if self.is_recording:
            self.operations.append((operator, metadata["args"]))

    def issue(self, name: str) -> None:
        if self.is_recording:
            self.operations.append((name, (self.phase, self.stack[-1] if self.stack else "")))

    def next_operation_id(self) -> int:
        return len(self.operations)

    def module_id(self, path: str) -> int:
        if path not in self.module_names:
            self.module_names.append(path)
        return self.module_names.index(path)

    def enter_module(self, module: int) -> None:
        self.stack.append(self.module_names[module])
        self.entered.append(self.module_names[module])

    def leave_module(self) -> None:
        self.stack.pop()

    def set_phase(self, phase: int) -> int:
        previous, self.phase = self.phase, phase
        return previous

    def bind_parameter(self, tensor: Any, module: int) -> None:
        self.bound[id(tensor)] = self.module_names[module]

    def source_line(self) -> str:
        return self.line

    def set_value_policy(self, policy: Any) -> None:
        self.policy = policy

    def storage_is_known(self, storage_cdata: int) -> bool:  # noqa: ARG002
        return False

    def record_storage_to_host(self, storage_cdata: int) -> None:
        self.copied_storages.append(storage_cdata)

    def names(self) -> list[str]:
        return [name for name, _ in self.operations]
