"""Where a process was, read from the stacks that `faulthandler` writes."""

from __future__ import annotations

import re
from pathlib import Path

import maya

_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_OURS = Path(maya.__file__).parent
_ROOMS = ("emulator", "traces", "kernel_models", "simulator")


def innermost_user_frame(stacks: str) -> str:
    """`at train.py:42 in forward`: the deepest frame of the main thread in neither Maya nor a library.

    Without such a frame the deepest of all, said to be outside the script; "" if there is none.

    Args:
        stacks: `faulthandler`'s text, most recent call first; the main thread comes last.
    """
    main_thread = stacks.split("hread 0x")[-1]
    frames = [match.groupdict() for match in map(_FRAME.fullmatch, main_thread.splitlines()) if match]
    users = [frame for frame in frames if not _is_library(frame["file"])]
    for frame in users or frames:
        outside = "" if users else "outside the script, "
        return f"{outside}at {_shown(frame['file'])}:{frame['line']} in {frame['function']}"
    return ""


def _is_library(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return True
    if re.search(r"/lib/python3\.\d+/", file):
        return True
    rooms = (_OURS, *(_OURS.parent / room for room in _ROOMS))
    return any(path.is_relative_to(room) for room in rooms)


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
