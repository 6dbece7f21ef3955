"""Running the script's code as plain Python would run it."""

from __future__ import annotations

import runpy
import sys
import threading

from maya.emulator.script.main_module import (
    ScriptTarget,
    check_module,
    compile_script,
    fresh_main,
    is_container,
    path_entry,
    prepare_path,
    set_arguments,
)
from maya.emulator.script.step_marker import DECORATOR_NAME, StepMarkerHook
from maya.errors import UsageError


def execute(
    target: ScriptTarget, *, marker: StepMarkerHook | None = None, replace_first_path: bool = True
) -> None:
    """Run a script or module to its end, in a fresh `__main__`.

    `sys.argv`, `sys.path[0]`, `__main__` and its globals become what `python script.py args` or
    `python -m module args` would set; the working folder and stdin are left alone.

    Args:
        target: what to run.
        marker: a step marker; one that names a function of `__main__` is put into the source.
        replace_first_path: whether `sys.path[0]` is this process's own entry (False if Python
            was started with `-P` or `-I`, which add none).

    Raises:
        UsageError: there is no such file or module.
        BaseException: whatever the script raises, SystemExit included.
    """
    target.check()
    prepare_path(path_entry(target), replace_first=replace_first_path)
    in_source = marker if marker is not None and marker.marker.module == "__main__" else None
    if target.is_module or is_container(target.name):
        if in_source is not None:
            raise UsageError(
                f"--step-marker __main__:{in_source.marker.function} works with a script file only",
                hint="Move the function to an importable module and name it there.",
            )
        fresh_main()
        if target.is_module:
            set_arguments("-m", target.arguments)
            check_module(target.name)
            runpy._run_module_as_main(target.name)  # type: ignore[attr-defined]
        else:
            set_arguments(target.name, target.arguments)
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    set_arguments(target.name, target.arguments)
    code, module = compile_script(target.name, in_source.transform if in_source is not None else None)
    if in_source is not None:
        module.__dict__[DECORATOR_NAME] = in_source.decorate
    exec(code, module.__dict__)


def join_threads() -> None:
    """Wait for the script's non-daemon threads, as the interpreter does before it exits."""
    while True:
        others = [
            thread
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.current_thread() and thread.is_alive()
        ]
        if not others:
            return
        others[0].join()


def started_without_path_entry() -> bool:
    """Whether this interpreter was told not to put a folder in front of `sys.path`."""
    return bool(sys.flags.safe_path or sys.flags.isolated)
