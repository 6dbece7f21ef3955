"""How a name typed by a user is matched against a catalogue: loosely, but never by guessing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_DROPPED_WORDS = ("nvidia", "geforce", "tesla", "quadro")
"""Brand words that torch puts before a product's name and that people leave out."""


def normalise(name: str) -> str:
    """The key under which a name is looked up: lower case letters and digits only.

    `NVIDIA GeForce RTX 3090`, `rtx-3090` and `RTX3090` give the same key.
    """
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    kept = [word for word in words if word not in _DROPPED_WORDS]
    return "".join(kept or words)


def close_names(wanted: str, known: Iterable[str], *, limit: int = 3) -> Sequence[str]:
    """Up to `limit` names out of `known` that the user may have meant, best first."""
    import difflib  # imported here: only a mistake needs it, and importing the room must stay cheap

    by_key: dict[str, str] = {}
    for name in known:
        by_key.setdefault(normalise(name), name)
    key = normalise(wanted)
    # A short name such as `h10` scores low against `h100sxm580gb`; sharing a beginning counts as well.
    beginnings = [k for k in by_key if key and (k.startswith(key) or key.startswith(k))]
    similar = difflib.get_close_matches(key, by_key, n=limit, cutoff=0.6)
    ordered = dict.fromkeys([*similar, *beginnings])
    return [by_key[k] for k in ordered][:limit]
