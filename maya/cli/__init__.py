"""The `maya` command: one file a command, imported only when it is asked for.

Each command's module has `configure(parser)` and `run(args) -> int | None` (the exit code). A
`MayaError` becomes one line and a hint on stderr; a traceback is shown only with `-vv`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import maya
from maya.errors import EXIT_FAILURE, EXIT_USAGE, MayaError, UsageError

COMMANDS = {
    "run": "run a training script without a GPU and predict its time, memory and cost",
    "report": "show a run again, predicted anew from its trace files",
    "trace": "look into and check execution traces",
    "gpus": "list the GPUs that Maya knows",
    "doctor": "check that this machine has what `maya run` needs",
}
"""Name → one line of help. A static table, so that `maya --help` imports no command."""

EXIT_INTERRUPTED = 130
"""128 + SIGINT, what a shell reports for a command ended by Ctrl-C."""
EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of our output went away, as in `maya gpus | head -1`."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints look like every other error of Maya."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint as a `UsageError` in place of printing the whole usage."""
        raise UsageError(message, hint=f"`{self.prog} --help` shows the options")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the entry point of the `maya` script.

    Args:
        arguments: without the program's name; `sys.argv[1:]` by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbosity = 0
    try:
        if not words or words[0].startswith("-"):
            return _without_command(words)
        name, rest = words[0], words[1:]
        if name not in COMMANDS:
            raise UsageError(f"there is no command '{name}'", hint=_suggestion(name))
        command = import_module(f"maya.cli.{name}")
        parser = Parser(prog=f"maya {name}", description=_sentence(COMMANDS[name]), allow_abbrev=False)
        command.configure(parser)
        with contextlib.suppress(argparse.ArgumentError):  # it has its own
            parser.add_argument("-v", "--verbose", action="count", default=0, help="-vv shows tracebacks")
        options = parser.parse_args(rest)
        verbosity = getattr(options, "verbose", 0) or 0
        code = command.run(options)
        sys.stdout.flush()
        return int(code or 0)
    except MayaError as error:
        _report(error.message, error.hint, verbosity)
        return error.exit_code
    except KeyboardInterrupt:
        print("maya: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still buffered for stdout would fail again in the interpreter's own flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except SystemExit as request:  # argparse: --help, --version and usage errors
        return request.code if isinstance(request.code, int) else EXIT_USAGE
    except Exception as error:  # anything else is a bug of ours; the user still gets a sentence
        hint = "this is a fault in Maya; run again with -vv for the traceback and please report it"
        _report(f"{type(error).__name__}: {error}", hint, verbosity)
        return EXIT_FAILURE


def _without_command(words: list[str]) -> int:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="maya",
        usage="maya [--version] COMMAND ...",
        description="What an unmodified PyTorch training job would do on GPUs that are not there.",
        epilog=f"commands:\n{listing}\n\n`maya COMMAND --help` explains one of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"maya {maya.__version__}")
    parser.parse_args(words)
    parser.print_help()
    return 0


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    if name.endswith(".py"):
        return f"did you mean `maya run {name}`?"
    close = get_close_matches(name, COMMANDS, n=1)
    return f"did you mean `maya {close[0]}`?" if close else f"commands: {', '.join(COMMANDS)}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _report(message: str, hint: str, verbosity: int) -> None:
    if verbosity >= 2:
        import traceback

        traceback.print_exc()
    print(f"maya: error: {message}", file=sys.stderr)
    if hint:
        print(f"maya: hint: {hint}", file=sys.stderr)
