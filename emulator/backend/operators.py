"""Which aten operators have a CUDA kernel in the installed torch.

An operator that a GPU runs whole must be registered for the device, or PyTorch would decompose it
into others. A CUDA build knows its own kernels; a CPU build carries `native_functions.yaml`, from
which the wheel's CUDA kernels were generated: the same list but for what is registered by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maya.errors import MayaError

REGISTERED_BY_HAND = frozenset({"convolution", "copy_", "_foreach_mm"})
"""Not in the yaml's CUDA entries: convolution and copy_ choose their backend in C++ on a GPU, and
_foreach_mm is registered from Python (torch/_native)."""

COMPOSITES_WITH_KERNELS = frozenset({"ldexp.Tensor", "ldexp_", "ldexp.out"})
"""Composites that since 2.14 call a CUDA kernel which is no operator."""
COMPOSITES_ON_STUBS = frozenset({"mode.values"})
"""Composites that look up a CUDA kernel which is no operator, and would miss it on the device."""
OWN_SPARSE_KERNELS = frozenset({"aten::_coalesce", "aten::add.out", "aten::mul.out"})
"""Of the key SparseCUDA, in csrc/kernels/sparse.h."""
UNEMULATED_KEYS = ("SparseCUDA", "SparseCsrCUDA", "QuantizedCUDA", "NestedTensorCUDA")
RUN_WITHOUT_DRIVER = frozenset({"c10d", "inductor_prims", "_native"})
"""Namespaces whose CUDA kernels only call other operators or a process group."""


def cuda_operators() -> list[str]:
    """Names with overloads and without namespace, `add.Tensor`, sorted.

    Raises:
        MayaError: this torch carries no operator list.
    """
    import torch

    if torch.version.cuda is not None:
        registered = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
        names = {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}
    else:
        names = _from_yaml()
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    by_hand = REGISTERED_BY_HAND if version < (2, 14) else REGISTERED_BY_HAND | COMPOSITES_WITH_KERNELS
    return sorted(names | by_hand | COMPOSITES_ON_STUBS)


def kernels_to_refuse() -> dict[str, list[str]]:
    """Kernels of a CUDA build that would ask the driver and that Maya does not emulate.

    Returns:
        dispatch key → names with namespace and overload; empty for a CPU build, where a fallback
        refuses them (in a CUDA build a fallback does not displace a real kernel).
    """
    import torch

    if torch.version.cuda is None:
        return {}
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    refused = {key: sorted(name for name in registered(key) if _is_foreign(name)) for key in UNEMULATED_KEYS}
    refused["SparseCUDA"] = [name for name in refused["SparseCUDA"] if name not in OWN_SPARSE_KERNELS]
    refused["CUDA"] = sorted(
        name for name in registered("CUDA") if _is_foreign(name) and not name.startswith("aten::")
    )
    return refused


@dataclass(frozen=True)
class SharedKernels:
    """Operators whose kernels are one C++ function for the CPU and CUDA, names with overloads.

    Attributes:
        sparse: of sparse COO tensors.
        to_sparse: of dense tensors that become sparse.
    """

    sparse: tuple[str, ...]
    to_sparse: tuple[str, ...]


def shared_kernels() -> SharedKernels:
    """What torch's operator list says is shared.

    Raises:
        MayaError: this torch carries no operator list.
    """
    kernels = {entry["func"].split("(")[0]: _kernels(entry) for entry in _entries()}
    return SharedKernels(
        tuple(
            sorted(
                name
                for name, of in kernels.items()
                if "SparseCUDA" in of and of["SparseCUDA"] == of.get("SparseCPU")
            )
        ),
        tuple(
            sorted(
                name
                for name, of in kernels.items()
                if "CUDA" in of and of["CUDA"] == of.get("CPU") == "dense_to_sparse"
            )
        ),
    )


def _kernels(entry: dict[str, Any]) -> dict[str, str]:
    """Dispatch key → name of the C++ function."""
    return {
        key.strip(): function
        for keys, function in (entry.get("dispatch") or {}).items()
        for key in keys.split(",")
    }


def _is_foreign(name: str) -> bool:
    return name.partition("::")[0] not in RUN_WITHOUT_DRIVER


def _entries() -> list[dict[str, Any]]:
    import torchgen
    import yaml

    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    try:
        text = path.read_text()
    except OSError as error:
        import torch

        raise MayaError(
            f"torch {torch.__version__} has no operator list at {path}: {error.strerror}",
            hint="Maya needs a torch wheel with torchgen; install torch==2.13.0.",
        ) from error
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster
    entries: list[dict[str, Any]] = yaml.load(text, Loader=loader)
    return entries


def _from_yaml() -> set[str]:
    by_name = {entry["func"].split("(")[0]: entry for entry in _entries()}
    return {name for name, entry in by_name.items() if _has_cuda_kernel(entry, by_name)}


def _has_cuda_kernel(entry: dict[str, Any], by_name: dict[str, dict[str, Any]]) -> bool:
    if "CUDA" in _kernels(entry) or entry.get("ufunc_inner_loop"):
        return True
    delegate = entry.get("structured_delegate")
    return delegate is not None and _has_cuda_kernel(by_name[delegate], by_name)


def write_operators(path: Path, names: list[str]) -> None:
    """One name a line."""
    path.write_text("\n".join(names) + "\n")


def read_operators(path: Path) -> list[str]:
    """What `write_operators` wrote."""
    return path.read_text().split()
