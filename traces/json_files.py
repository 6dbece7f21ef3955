"""JSON files of a run: read with types checked, written under a temporary name and renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from maya.errors import MayaError

T = TypeVar("T")

MAX_JSON_BYTES = 1 << 30
"""Refuse to load more: tables of a 1 M-operation trace are some tens of MB."""


class JsonRecord:
    """A JSON object of a file, whose keys are fetched with their types.

    Args:
        path: the file, for messages.
        value: the parsed value; anything but an object is an error.
        where: which part of the file, for messages; "" for the whole.
    """

    def __init__(self, path: Path, value: Any, where: str = "") -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            self.fail(f"an object was expected, not {_kind(value)}")
        self.value: dict[str, Any] = value

    def fail(self, problem: str) -> NoReturn:
        """Raise the error that names this file and place."""
        place = f" in {self.where}" if self.where else ""
        raise MayaError(
            f"{self.path}: {problem}{place}",
            hint="the file is damaged or was not written by this version of Maya; record the run again",
        )

    def get(self, key: str, expected: type[T]) -> T:
        """The value of a key that must be there and of the type (a bool is not an int)."""
        if key not in self.value:
            self.fail(f"key {key!r} is missing")
        return self._typed(f"key {key!r}", self.value[key], expected)

    def items(self, key: str, expected: type[T]) -> tuple[T, ...]:
        """A list whose elements all have the type."""
        values = self.get(key, list)
        # Every element is looked at, so look fast: type() equality is what JSON values need.
        for index, element in enumerate(values):
            if type(element) is not expected:
                self._typed(f"element {index} of {key!r}", element, expected)
        return tuple(values)

    def no_others(self, known: Mapping[str, Any] | frozenset[str]) -> None:
        """Fail on a key nobody reads: it means another version, or a slip of the hand."""
        for key in self.value:
            if key not in known:
                self.fail(f"unknown key {key!r}")

    def _typed(self, what: str, value: Any, expected: type[T]) -> T:
        wrong = not isinstance(value, expected) or (expected is int and isinstance(value, bool))
        if wrong:
            self.fail(f"{what} must be {expected.__name__}, not {_kind(value)}")
        return value  # type: ignore[no-any-return]


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


def read_json(path: str | os.PathLike[str], what: str, missing_hint: str) -> Any:
    """Parse a JSON file.

    Args:
        path: the file.
        what: what it is, for messages ("the run's manifest").
        missing_hint: what it means that the file is not there.

    Raises:
        MayaError: missing, unreadable, too large, not UTF-8, not JSON.
    """
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise MayaError(f"{path}: {size} bytes is too large for {what}")
        return json.loads(path.read_bytes().decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MayaError(f"{path}: {what} is missing", hint=missing_hint) from error
    except OSError as error:
        raise MayaError(f"{path}: cannot read {what}: {error.strerror}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise MayaError(
            f"{path}: {what} is not valid JSON: {error}",
            hint="the file is damaged, most likely cut short; record the run again",
        ) from error


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = None) -> None:
    """Write JSON to a temporary name beside `path`, then rename. NaN is refused (ValueError)."""
    path = Path(path)
    separators = None if indent else (",", ":")
    temporary = path.with_name(f"{path.name}.partial")
    temporary.write_text(
        json.dumps(value, indent=indent, separators=separators, allow_nan=False) + "\n", encoding="utf-8"
    )
    temporary.replace(path)
