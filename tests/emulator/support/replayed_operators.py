"""Calls every operator that real GPU runs recorded on the emulated device; prints what came of it as JSON.

    python replayed_operators.py TRACE.json.gz|TRACE.tar.gz...

Each distinct call (operator, shapes, dtypes, scalar arguments) of an operator that the emulated device
registers is made once, with tensors of the recorded shapes. Answers per trace: `calls`, `operators`, and
`differences` from the recorded output shapes and dtypes.
"""

import gzip
import json
import math
import sys
import tarfile
from pathlib import Path

import torch
from recorded_operators import native

from maya.emulator.backend.library import operators_of_build

REGISTERED = set(operators_of_build()) | set(native.direct_operators())
NO_OUTPUT_CHECK = {"aten::record_stream", "aten::_local_scalar_dense", "aten::set_.source_Storage"}
DTYPES = {
    "float": torch.float32,
    "c10::Half": torch.float16,
    "c10::BFloat16": torch.bfloat16,
    "double": torch.float64,
    "long": torch.int64,
    "long int": torch.int64,
    "int": torch.int32,
    "bool": torch.bool,
    "unsigned char": torch.uint8,
}
SCALAR_TYPES = {
    0: torch.uint8,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
}
SCALAR_TYPES |= {11: torch.bool, 15: torch.bfloat16}
MEMORY_FORMATS = {0: torch.contiguous_format, 1: torch.preserve_format, 2: torch.channels_last}
"""c10's numbers of dtypes and memory formats, as traces have them."""


SPARE_ELEMENTS = 1 << 22


class Unreplayable(Exception):
    """The trace does not say enough about an argument."""


def nodes_of(path):
    """Nodes of the trace, of the first one of several ranks."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            files = sorted((m for m in archive.getmembers() if m.isfile()), key=lambda m: m.name)
            return json.load(archive.extractfile(files[0]))["nodes"]
    return json.loads(gzip.decompress(path.read_bytes()))["nodes"]


def schema_of(node):
    attributes = {a["name"]: a["value"] for a in node.get("attrs", [])}
    return str(attributes.get("op_schema") or node.get("op_schema") or "").split("(")[0]


def side_of(node, side):
    """Values, shapes and types of "inputs" or "outputs"; schema 1.0.1 has them apart."""
    if isinstance(node[side], dict):
        return node[side]["values"], node[side]["shapes"], node[side]["types"]
    singular = side.removesuffix("s")
    return node[side], node[f"{singular}_shapes"], node[f"{singular}_types"]


def tensor_type(kind):
    return kind.removeprefix("Tensor(").removesuffix(")")


def tensor(shape, kind, value, device="cuda"):
    name = tensor_type(kind)
    if "nullptr" in name:
        return None
    if name not in DTYPES:
        raise Unreplayable(name)
    on = value[-1] if isinstance(value, list) and isinstance(value[-1], str) else device
    on = "cuda" if on.startswith("cuda") else "cpu"
    # Traces give no strides: a view into more bytes than it shows is only possible in a larger storage.
    return torch.empty(math.prod(shape) + SPARE_ELEMENTS, dtype=DTYPES[name], device=on)[
        : math.prod(shape)
    ].view(shape)


def argument(schema_type, shape, kind, value):
    if kind == "None" or value == "<None>":
        return None
    if kind.startswith("Tensor("):
        return tensor(shape, kind, value)
    if kind.startswith("GenericList["):
        kinds = kind.removeprefix("GenericList[").removesuffix("]").split(",")
        if kinds == [""]:
            return []
        return [argument("", *parts) for parts in zip(shape, kinds, value, strict=True)]
    if "ScalarType" in schema_type:
        return SCALAR_TYPES[value]
    if "MemoryFormat" in schema_type:
        return MEMORY_FORMATS[value]
    if "Layout" in schema_type:
        return torch.strided
    if kind == "Device":
        return torch.device("cuda" if value.startswith("cuda") else "cpu")
    if kind in ("Int", "Bool", "Double", "String", "SymInt"):
        return {"Bool": bool, "Double": float, "String": str}.get(kind, int)(value)
    raise Unreplayable(kind)


def shapes_of(values):
    found = []
    for value in values if isinstance(values, (tuple, list)) else [values]:
        if isinstance(value, (tuple, list)):
            found += shapes_of(value)
        elif isinstance(value, torch.Tensor):
            found.append([list(value.shape), str(value.dtype).removeprefix("torch.")])
    return found


def recorded_shapes(shapes, kinds):
    found = []
    for shape, kind in zip(shapes, kinds, strict=True):
        if kind.startswith("GenericList["):
            inner = kind.removeprefix("GenericList[").removesuffix("]").split(",")
            found += recorded_shapes(shape, inner) if inner != [""] else []
        elif kind.startswith("Tensor(") and "nullptr" not in kind:
            found.append([shape, str(DTYPES[tensor_type(kind)]).removeprefix("torch.")])
    return found


def replay(path):
    seen, differences, operators, unreplayable = set(), [], set(), set()
    for node in nodes_of(path):
        name = schema_of(node)
        if not name.startswith("aten::") or name.removeprefix("aten::") not in REGISTERED:
            continue
        inputs, shapes, types = side_of(node, "inputs")
        outputs, output_shapes, output_types = side_of(node, "outputs")
        devices = [value[-1] for value in inputs if isinstance(value, list) and len(value) == 6]
        scalars = [value for value, kind in zip(inputs, types, strict=True) if "Tensor" not in kind]
        key = json.dumps([name, shapes, types, scalars, devices])
        if "cuda" not in json.dumps([inputs, outputs]) or key in seen:
            continue
        seen.add(key)
        packet, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        try:
            schema = operator._schema.arguments
            given = list(zip(shapes, types, inputs, strict=True))
            values = [argument(str(a.type), *parts) for a, parts in zip(schema, given, strict=False)]
            wanted = recorded_shapes(output_shapes, output_types)
        except (Unreplayable, KeyError, TypeError, ValueError) as error:
            unreplayable.add(f"{name}: {type(error).__name__} {error}")
            continue
        positional = [v for a, v in zip(schema, values, strict=False) if not a.kwarg_only]
        named = {a.name: v for a, v in zip(schema, values, strict=False) if a.kwarg_only}
        operators.add(name)
        try:
            with torch.no_grad():
                made = shapes_of(operator(*positional, **named))
        except Exception as error:  # told in the answer: the test fails with it
            differences.append([name, shapes, f"{type(error).__name__}: {str(error)[:300]}"])
            continue
        if name not in NO_OUTPUT_CHECK and made != wanted:
            differences.append([name, shapes, f"made {made}, a GPU made {wanted}"])
    return {
        "calls": len(seen),
        "operators": sorted(operators),
        "differences": differences,
        "unreplayable": sorted(unreplayable),
    }


json.dump({path: replay(Path(path)) for path in sys.argv[1:]}, sys.stdout)
