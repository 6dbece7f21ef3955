"""The one error type a user of Maya ever sees, and the exit codes it carries."""

from __future__ import annotations

EXIT_FAILURE = 1
"""Out of memory, a hang, a corrupt trace, anything that went wrong while running."""
EXIT_USAGE = 2
"""The command line or a configuration file asks for something impossible."""


class MayaError(Exception):
    """A failure explained to the user: what happened, and what to do about it.

    Args:
        message: names the mistake and the place (file, offset, node, option).
        hint: the likely cause and the fix, one sentence; printed on its own line.
        exit_code: what the process exits with when nobody catches this.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class UsageError(MayaError):
    """A wrong argument: exit code 2."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_USAGE)
