"""An exception that the script did not catch, shown as plain Python shows it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

OWN_FOLDERS = tuple(
    {str(folder.parent.parent) + os.sep for folder in (Path(__file__), Path(__file__).resolve())}
)
"""Frames of code in here are Maya's, which the script's author should never see. Frames carry the path
the code was imported by, which may lead through a symbolic link."""


def _is_own(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(OWN_FOLDERS)


def without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback with Maya's frames taken out, wherever they are."""
    while traceback is not None and _is_own(traceback):
        traceback = traceback.tb_next
    current = traceback
    while current is not None:
        following = current.tb_next
        while following is not None and _is_own(following):
            following = following.tb_next
        current.tb_next = following
        current = following
    return traceback


def _chain(error: BaseException) -> Iterator[BaseException]:
    pending = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [link for link in (current.__cause__, current.__context__) if link is not None]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions


def strip_own_frames(error: BaseException) -> None:
    """Take Maya's frames out of an exception and of all that it was raised from."""
    for link in _chain(error):
        link.__traceback__ = without_own_frames(link.__traceback__)


def show_uncaught(error: BaseException) -> None:
    """Print through `sys.excepthook`, the script's own if it has set one."""
    strip_own_frames(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    flush_streams()
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception as failure:
        strip_own_frames(failure)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    flush_streams()


def exit_code_of(request: SystemExit) -> int:
    """The process's exit code for a SystemExit; any other object than a number is printed."""
    code = request.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def flush_streams() -> None:
    """Flush stdout and stderr, if the script left them usable."""
    for stream in (sys.stdout, sys.stderr):
        # A closed stream or a reader that went away is not worth an error at the very end.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
