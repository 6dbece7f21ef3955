"""Repairs that can be named: what a damaged Chakra file still says, written anew.

- cut: a file that ends, or turns to garbage, in the middle loses what follows the last whole node;
- dangling dependencies: dependencies on nodes that are not in the file are dropped.

Anything else (duplicate ids, cycles, another schema) has no one right repair and is refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from maya.traces.chakra_schema import messages
from maya.traces.file_header import check_header
from maya.traces.frames import find_messages, open_trace
from maya.traces.validation import validate_et
from maya.traces.wire import varint


def repair_et(path: str | os.PathLike[str], out_path: str | os.PathLike[str]) -> list[str]:
    """Write a repaired copy, uncompressed, and check it.

    Args:
        path: a Chakra file, gzipped or not.
        out_path: the copy; temporary name, then rename. Not written if the repair fails.

    Returns:
        What was done, one sentence each; empty for a sound file.

    Raises:
        TraceError: there is nothing to save, or something else is wrong as well.
    """
    from google.protobuf.message import DecodeError

    path, out_path = Path(path), Path(out_path)
    buffer = open_trace(path)
    check_header(buffer, path)
    starts, ends = find_messages(buffer, path, keep_whole=True)
    done: list[str] = []
    nodes: list[Any] = []
    parse = messages().Node.FromString
    kept_to = int(ends[0])
    for start, end in zip(starts[1:].tolist(), ends[1:].tolist(), strict=True):
        try:
            nodes.append(parse(buffer[start:end]))
        except DecodeError:
            break
        kept_to = end
    if kept_to < len(buffer):
        done.append(
            f"cut: {len(buffer) - kept_to} bytes after byte {kept_to} are not whole nodes and were left out"
        )
    dropped = _drop_dangling(nodes)
    if dropped:
        done.append(f"dangling dependencies: {dropped} on nodes that are not in the file were dropped")

    temporary = out_path.with_name(f"{out_path.name}.partial")
    with temporary.open("wb") as file:
        header = buffer[int(starts[0]) : int(ends[0])]
        for body in (header, *(node.SerializeToString() for node in nodes)):
            file.write(varint(len(body)))
            file.write(body)
    try:
        validate_et(temporary)
    except BaseException:
        temporary.unlink()
        raise
    temporary.replace(out_path)
    return done


def _drop_dangling(nodes: list[Any]) -> int:
    known = {node.id for node in nodes}
    dropped = 0
    for node in nodes:
        for dependencies in (node.ctrl_deps, node.data_deps):
            kept = [identifier for identifier in dependencies if identifier in known]
            if len(kept) < len(dependencies):
                dropped += len(dependencies) - len(kept)
                dependencies[:] = kept
    return dropped
