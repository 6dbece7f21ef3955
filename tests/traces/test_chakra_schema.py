"""The message classes say what chakra.proto says, and stay out of everyone's way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import maya.traces
from maya.traces.chakra_schema import file_descriptor, messages

PROTO = Path(maya.traces.__file__).parent / "chakra.proto"


def _run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _protoc(*arguments: str) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    include = Path(protoc.__file__).parent / "_proto"
    assert protoc.main(["protoc", f"-I{include}", f"-I{PROTO.parent}", *arguments, PROTO.name]) == 0


def test_descriptor_agrees_with_the_proto_file(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    _protoc(f"--descriptor_set_out={tmp_path / 'set.pb'}")
    compiled = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set.pb").read_bytes()).file[0]
    ours = file_descriptor()
    compiled.ClearField("name")
    ours.ClearField("name")
    for file in (compiled, ours):
        messages_by_name = sorted(file.message_type, key=lambda message: message.name)
        del file.message_type[:]
        file.message_type.extend(messages_by_name)
        for message in file.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert ours == compiled


def test_protoc_output_reads_what_maya_writes(tmp_path: Path, small_et: Path) -> None:
    """The file parses with the plain schema, in a process that knows nothing of Maya."""
    _protoc(f"--python_out={tmp_path}")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import chakra_pb2
from google.protobuf.proto import parse_length_prefixed
nodes = []
with open(sys.argv[2], "rb") as file:
    metadata = parse_length_prefixed(chakra_pb2.GlobalMetadata, file)
    while (node := parse_length_prefixed(chakra_pb2.Node, file)) is not None:
        nodes.append(node)
print(metadata.version, [node.id for node in nodes], nodes[1].name, nodes[1].inputs.shapes)
print({attr.name: attr.string_val for attr in nodes[1].attr}["maya.module"])
assert "maya" not in sys.modules
"""
    out = _run(code, str(tmp_path), str(small_et)).splitlines()
    assert out[0] == f"0.0.4 {list(range(12))} aten::mm [[4,8],[8,2],[]]"
    assert out[1] == "Net.fc"


def test_no_clash_with_another_chakra_in_the_process(tmp_path: Path) -> None:
    _protoc(f"--python_out={tmp_path}")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
first, second = sys.argv[2].split(",")
def ours():
    from maya.traces.chakra_schema import messages
    return messages().Node(id=3)
def theirs():
    import chakra_pb2
    return chakra_pb2.Node(id=3)
made = {name: globals()[name]() for name in (first, second)}
assert made["ours"].DESCRIPTOR is not made["theirs"].DESCRIPTOR
print(made["theirs"].FromString(made["ours"].SerializeToString()).id)
"""
    for order in ("ours,theirs", "theirs,ours"):
        assert _run(code, str(tmp_path), order) == "3\n"


def test_importing_the_room_is_light() -> None:
    """numpy only: protobuf waits until a Chakra file is read."""
    code = """
import sys, numpy
before = set(sys.modules)
import maya.traces
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"google", "torch", "pandas", "rich", "scipy"}))
"""
    assert _run(code) == "[]\n"


def test_messages_are_built_once() -> None:
    assert messages() is messages()
