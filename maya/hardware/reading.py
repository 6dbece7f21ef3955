"""Reading TOML tables: every mistake in a file a user may have written is named with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from maya.errors import UsageError

TYPE_CHECKING = False  # known to type checkers; importing `typing` would double the cost of this room
if TYPE_CHECKING:
    from typing import Any


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        UsageError: the file is missing, unreadable, or not TOML; names file, line and column.
    """
    import tomllib  # imported here: `import maya.hardware` must stay cheap

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint="Check the path.") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: not UTF-8 text (byte {error.start})", hint="A TOML file is expected here."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}", hint="Strings need quotes in TOML.") from error


def rows_of(content: Mapping[str, Any], key: str, path: Path, *, others: Iterable[str] = ()) -> list[Row]:
    """The `[[key]]` tables of a file as rows; top-level keys other than `key` and `others` are a mistake."""
    unknown = sorted(set(content) - {key, *others})
    if unknown:
        raise UsageError(
            f"{path}: unknown table {unknown[0]!r}", hint=f"Tables expected here are [[{key}]], one a row."
        )
    tables = content.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{path}: {key!r} is not a list of tables", hint=f"Write [[{key}]] above each row.")
    return [Row(table, f"{path}: {key} {index + 1}") for index, table in enumerate(tables)]


class Row:
    """One TOML table read key by key; `finish` complains about keys nobody asked for."""

    def __init__(self, table: Mapping[str, Any], place: str) -> None:
        self._table = table
        self._asked: set[str] = set()
        self.place = place

    @property
    def as_written(self) -> Mapping[str, Any]:
        """The whole table."""
        return self._table

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.mistake(key, value, "a non-empty string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise self.mistake(key, value, "a list of strings")
        return tuple(value)

    def integer(self, key: str, *, least: int = 1) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.mistake(key, value, f"an integer of at least {least}")
        return value

    def number(self, key: str, *, positive: bool = True) -> float:
        value = self._get(key)
        if not _is_number(value) or value < 0 or (positive and value == 0):
            raise self.mistake(key, value, "a positive number" if positive else "a number of at least 0")
        return float(value)

    def numbers(self, key: str, allowed: Iterable[str]) -> dict[str, float]:
        """A table of positive numbers whose keys are among `allowed`."""
        value = self._get(key)
        allowed = tuple(allowed)
        if not isinstance(value, dict) or not value:
            raise self.mistake(key, value, f"a table of numbers with keys out of {', '.join(allowed)}")
        for name, figure in value.items():
            if name not in allowed:
                raise self.mistake(f"{key}.{name}", figure, f"one of the keys {', '.join(allowed)}")
            if not _is_number(figure) or figure <= 0:
                raise self.mistake(f"{key}.{name}", figure, "a positive number")
        return {name: float(figure) for name, figure in value.items()}

    def table(self, key: str) -> dict[str, Any]:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.mistake(key, value, "a table")
        return value

    def value(self, key: str) -> Any:
        """The raw value, for the few keys with a form of their own."""
        return self._get(key)

    def finish(self) -> None:
        """Raises UsageError when the table holds a key that was never read: most often a misspelling."""
        unknown = sorted(set(self._table) - self._asked)
        if unknown:
            raise UsageError(
                f"{self.place}: unknown key {unknown[0]!r}",
                hint=f"Known keys: {', '.join(sorted(self._asked))}.",
            )

    def mistake(self, key: str, value: object, wanted: str) -> UsageError:
        """The error for a value of the wrong form."""
        return UsageError(f"{self.place}: {key} is {value!r}", hint=f"It must be {wanted}.")

    def _get(self, key: str) -> Any:
        self._asked.add(key)
        if key not in self._table:
            raise UsageError(f"{self.place}: {key!r} is missing", hint=f"Add a line `{key} = ...`.")
        return self._table[key]


def _is_number(value: object) -> bool:
    finite = isinstance(value, int | float) and value == value and value not in (float("inf"), float("-inf"))
    return finite and not isinstance(value, bool)
