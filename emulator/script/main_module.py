"""The script as `__main__`: found, compiled and given the globals that plain Python gives it."""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from maya.errors import UsageError


@dataclass(frozen=True)
class ScriptTarget:
    """What the user asked to run.

    Attributes:
        name: path of a script, of a folder or archive with a `__main__.py`, or a module's name.
        arguments: its `sys.argv[1:]`.
        is_module: True for `-m name`.
    """

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def check(self) -> None:
        """Raises UsageError if the file does not exist. A module is looked for when it runs."""
        if not self.is_module and not os.path.exists(self.name):
            raise UsageError(
                f"can't open file {os.path.abspath(self.name)!r}: no such file",
                hint="The first word after Maya's own options is the script to run.",
            )


def fresh_main() -> ModuleType:
    """Put a new, empty `__main__` into `sys.modules`, with what plain Python puts there."""
    module = ModuleType("__main__")
    names = vars(module)
    names["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    sys.modules["__main__"] = module
    return module


def prepare_path(entry: str, *, replace_first: bool) -> None:
    """Make `entry` the script's `sys.path[0]`, in place of the one this process was started with."""
    if replace_first and sys.path:
        sys.path[0] = entry
    else:
        sys.path.insert(0, entry)


def path_entry(target: ScriptTarget) -> str:
    """What plain Python puts in front of `sys.path` for this target."""
    if target.is_module:
        return os.getcwd()
    if is_container(target.name):
        return os.path.abspath(target.name)
    return str(Path(os.path.realpath(target.name)).parent)


def is_container(path: str) -> bool:
    """Whether plain Python would run `path`'s `__main__.py`: a folder or an archive."""
    if os.path.isdir(path):
        return True
    # Only a path hook that recognises the file (zipimport) gives a finder for it.
    return pkgutil.get_importer(os.path.abspath(path)) is not None


def check_module(name: str) -> None:
    """See that a module can be found, importing its parent packages as `-m` does.

    Raises:
        UsageError: there is no such module.
        BaseException: whatever a parent package raises when it is imported.
    """
    try:
        found = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        parents = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        if error.name is None or error.name not in parents | {name}:
            raise
        found = False
    except (ValueError, ImportError) as error:
        raise UsageError(f"-m {name}: {error}", hint="Give an absolute dotted module name.") from error
    if not found:
        raise UsageError(
            f"no module named {name!r}",
            hint=f"`-m` looks in {os.getcwd()} and in the installed packages.",
        )


def compile_script(
    path: str, transform: Callable[[ast.Module], ast.Module] | None = None
) -> tuple[CodeType, ModuleType]:
    """Read and compile a script file and make its `__main__`.

    Args:
        path: as given on the command line; a source file or a compiled one.
        transform: changes the parsed source before it is compiled.

    Returns:
        The code and the module whose globals it runs in, already in `sys.modules`.

    Raises:
        SyntaxError, UnicodeDecodeError, OSError: as plain Python would.
    """
    absolute = os.path.join(os.getcwd(), path)
    module = fresh_main()
    with io.open_code(absolute) as stream:
        code = pkgutil.read_code(stream)
    if code is None:
        with io.open_code(absolute) as stream:
            source = stream.read()
        if transform is None:
            code = compile(source, absolute, "exec", dont_inherit=True)
        else:
            tree = transform(ast.parse(source, absolute))
            code = compile(tree, absolute, "exec", dont_inherit=True)
        loader: object = importlib.machinery.SourceFileLoader("__main__", absolute)
    else:
        loader = importlib.machinery.SourcelessFileLoader("__main__", absolute)
    vars(module).update(__file__=absolute, __cached__=None, __loader__=loader, __package__=None)
    return code, module


def set_arguments(first: str, arguments: Sequence[str]) -> None:
    """Set `sys.argv`."""
    sys.argv[:] = [first, *arguments]
