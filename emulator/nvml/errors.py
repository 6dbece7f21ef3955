"""NVML's errors as `pynvml` raises them: one class per code."""

from __future__ import annotations

ERRORS: dict[int, tuple[str, str]] = {
    1: ("Uninitialized", "Uninitialized"),
    2: ("InvalidArgument", "Invalid Argument"),
    3: ("NotSupported", "Not Supported"),
    4: ("NoPermission", "Insufficient Permissions"),
    5: ("AlreadyInitialized", "Already Initialized"),
    6: ("NotFound", "Not Found"),
    7: ("InsufficientSize", "Insufficient Size"),
    8: ("InsufficientPower", "Insufficient External Power"),
    9: ("DriverNotLoaded", "Driver Not Loaded"),
    10: ("Timeout", "Timeout"),
    11: ("IrqIssue", "Interrupt Request Issue"),
    12: ("LibraryNotFound", "NVML Shared Library Not Found"),
    13: ("FunctionNotFound", "Function Not Found"),
    14: ("CorruptedInforom", "Corrupted infoROM"),
    15: ("GpuIsLost", "GPU is lost"),
    16: ("ResetRequired", "GPU requires restart"),
    17: ("OperatingSystem", "The operating system has blocked the request."),
    18: ("LibRmVersionMismatch", "RM has detected an NVML/RM version mismatch."),
    19: ("InUse", "In use"),
    20: ("Memory", "Insufficient memory"),
    21: ("NoData", "No data"),
    999: ("Unknown", "Unknown Error"),
}
"""nvmlReturn_t of nvml.h -> (name of the class, text)."""


class NVMLError(Exception):
    """An NVML call failed; `NVMLError(code)` makes the subclass of that code."""

    value = 999

    def __new__(cls, value: int | None = None) -> NVMLError:
        if cls is NVMLError and value in ERROR_CLASSES:
            cls = ERROR_CLASSES[value]
        made = super().__new__(cls)
        made.value = cls.value if value is None else value
        return made

    def __init__(self, *_: int | None) -> None:
        super().__init__(self.value)

    def __str__(self) -> str:
        return ERRORS.get(self.value, ("", f"NVML Error with code {self.value}"))[1]


ERROR_CLASSES: dict[int | None, type[NVMLError]] = {}
ERROR_CLASSES.update(
    {
        code: type(f"NVMLError_{name}", (NVMLError,), {"value": code, "__module__": "pynvml"})
        for code, (name, _) in ERRORS.items()
    }
)
"""Code -> class, as `pynvml.NVMLError_NotSupported` and the others."""
