"""Reading a JSON card with errors that say what to do."""

from __future__ import annotations

import json
from importlib.resources.abc import Traversable
from typing import Any

from maya.errors import MayaError


def read_card(source: Traversable) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        MayaError: the file is missing, not JSON, or not an object.
    """
    remedy = "reinstall Maya, or make it with python -m maya.kernel_models.fit --data DIR"
    try:
        card = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MayaError(f"no file {source}", hint=remedy) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MayaError(f"{source} is not JSON: {error}", hint=remedy) from error
    if not isinstance(card, dict):
        raise MayaError(f"{source} is not a JSON object", hint=remedy)
    return card
