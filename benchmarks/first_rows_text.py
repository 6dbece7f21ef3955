"""What `first_rows.md` says in words: how the rows were run, judgements of the errors, differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

HEAD = ""
PARTS = ""
JUDGEMENTS: dict[str, str] = {}
DIFFERENCES = ""


def summary(errors: Sequence[float], inside: int) -> str:
    """Errors of some rows in a sentence."""
    size = np.abs(errors)
    return (
        f"{len(errors)} rows: median |error| {100 * np.median(size):.1f}%, largest {100 * size.max():.1f}%, "
        f"median signed {100 * np.median(errors):+.1f}%; {inside} of {len(errors)} measurements lie in the "
        "80% interval."
    )
