"""The user's own checkpoints survive a run: made-up contents never replace a file that was there.

A script run under Maya saves weights that nobody computed. Where such a checkpoint would replace
a file from before the run, it is written beside it, `best.pt.maya`, and a later load of `best.pt`
within the run finds it there. Files of earlier runs, recognisable by their holes, are replaced.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

SUFFIX = ".maya"
HOLE_SHARE = 0.5
"""A file with less than this share of its bytes on disk was written by Maya: real weights have no holes."""


class KeptFiles:
    """Knows which files hold made-up contents, and keeps them off the user's own."""

    def __init__(self) -> None:
        self._made_up: set[str] = set()
        self._diverted: dict[str, str] = {}
        self._originals: dict[str, Any] = {}

    def install(self) -> None:
        """Watch `os.replace` and `os.rename`: scripts save under a temporary name first."""
        for name in ("replace", "rename"):
            original = self._originals[name] = getattr(os, name)
            setattr(os, name, self._watching(original))

    def remove(self) -> None:
        """Put the functions of `os` back."""
        for name, original in self._originals.items():
            setattr(os, name, original)
        self._originals = {}

    def place_for(self, target: Any) -> Any:
        """Where a checkpoint for `target` is to be written; `target` itself if nothing is lost."""
        if not isinstance(target, str | os.PathLike) or not self._is_users(os.fspath(target)):
            return target
        return f"{os.fspath(target)}{SUFFIX}"

    def place_of(self, target: Any) -> Any:
        """Where to read what the script saved as `target`."""
        if not isinstance(target, str | os.PathLike):
            return target
        return self._diverted.get(os.path.realpath(target), target)

    def saved(self, target: Any, place: Any, *, made_up: bool) -> None:
        """A checkpoint for `target` was written to `place`; real contents go where they were meant to."""
        if not isinstance(target, str | os.PathLike):
            return
        if not made_up:
            if place != target:
                self._originals.get("replace", os.replace)(place, target)
            return
        self._made_up.add(os.path.realpath(place))
        if place != target:
            self._keep(os.fspath(target), os.fspath(place))

    def _watching(self, original: Any) -> Any:
        @functools.wraps(original)
        def move(source: Any, target: Any, **options: Any) -> Any:
            by_name = isinstance(source, str | os.PathLike) and isinstance(target, str | os.PathLike)
            if options or not by_name or os.path.realpath(source) not in self._made_up:
                return original(source, target, **options)
            place = self.place_for(target)
            self._made_up.discard(os.path.realpath(source))
            original(source, place)
            self.saved(target, place, made_up=True)
            return None

        return move

    def _is_users(self, path: str) -> bool:
        try:
            status = os.stat(path)
        except OSError:
            return False
        real = status.st_blocks * 512 >= HOLE_SHARE * status.st_size
        return real and os.path.isfile(path) and os.path.realpath(path) not in self._made_up

    def _keep(self, target: str, place: str) -> None:
        if os.path.realpath(target) not in self._diverted:
            print(
                f"maya: kept {target}: the checkpoint of this run has made-up weights and is {place}",
                file=sys.stderr,
            )
        self._diverted[os.path.realpath(target)] = place
