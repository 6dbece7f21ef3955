"""What a script reads when it asks for a value that nobody computed.

Large tensors on the fake device have shapes but no contents. Reading one (`.item()`, `.cpu()`,
`if tensor:`, `nonzero`) is answered with a finite, plausible value, so that logging, early
stopping, rejection loops and index arithmetic go on as in a healthy run. Every distinct use is
counted with its source line: the run's assumptions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Value = bool | int | float

FALSE_PRODUCERS = frozenset({"isnan", "isinf", "isposinf", "isneginf", "any", "eq", "isin"})
"""Questions a healthy run answers with no: two unknown numbers are not equal, no end of text is reached."""
TRUE_PRODUCERS = frozenset({"isfinite", "isreal", "all", "equal", "allclose", "isclose", "ne"})
"""Questions a healthy run answers with yes."""
NORM_PRODUCERS = frozenset(
    {"norm", "linalg_vector_norm", "linalg_matrix_norm", "_foreach_norm", "_weight_norm", "std", "var"}
)
"""Norms and spreads: 1.0, so that gradient clipping neither scales nor warns."""
SHARE_PRODUCERS = frozenset({"softmax", "_softmax", "sigmoid", "rand", "rand_like", "uniform"})
"""Probabilities."""
INDEX_PRODUCERS = frozenset(
    {"argmax", "argmin", "argsort", "sort", "topk", "multinomial", "nonzero", "searchsorted", "bucketize"}
)
"""Positions in something: 0 is the only one that always exists."""

_FLOATING = ("float", "bfloat", "half", "double", "complex")


@dataclass(frozen=True)
class ValueSettings:
    """The defaults of the policy, all of which a user may change.

    Attributes:
        first_loss, loss_decay: the n-th read of a float on one source line is
            `first_loss / (1 + loss_decay * n)`: strictly decreasing, slowly enough for any
            patience, positive for ever.
        norm: norms and standard deviations.
        share: probabilities.
        copied_float: every element of a float tensor that is copied to the host.
        item_integer: an integer scalar that is not an index.
        copied_integer: every element of an integer tensor that is copied to the host.
        selected_share: the share of elements that `nonzero`, a mask or `unique` selects.
        truth: any other boolean.
        patience: how often in a row one source line reads the same boolean within an
            iteration before the answers alternate, so that rejection loops end. Generation that
            asks after each token whether all sequences have ended is such a loop, too.
        producers: value by operator name (`aten::mean`), before any of the rules.
        seed: other than 0, losses and copied floats differ by up to 5% between seeds.
    """

    first_loss: float = 0.9
    loss_decay: float = 0.01
    norm: float = 1.0
    share: float = 0.5
    copied_float: float = 0.5
    item_integer: int = 1
    copied_integer: int = 0
    selected_share: float = 0.5
    truth: bool = True
    patience: int = 1000
    producers: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.selected_share <= 1.0:
            raise ValueError(f"selected_share is {self.selected_share}, not a share between 0 and 1")
        if self.first_loss <= 0.0 or self.loss_decay <= 0.0:
            raise ValueError("first_loss and loss_decay have to be positive")
        if self.patience < 1:
            raise ValueError(f"patience is {self.patience}, but has to be at least 1")


@dataclass
class _Use:
    """One distinct assumption."""

    value: Value | str
    count: int = 0
    in_iteration: int = 0


class ValuePolicy:
    """The callable for `native.set_value_policy`.

    Args:
        source_line: `file:line` of the user's frame that reads.
    """

    def __init__(self, settings: ValueSettings, source_line: Callable[[], str]) -> None:
        self._settings = settings
        self._source_line = source_line
        self._uses: dict[tuple[str, str, str], _Use] = {}

    def __call__(self, kind: str, producer: str, dtype: Any, numel: int, reads: int) -> Value:
        """Answer one read.

        Args:
            kind: "item", "bool", "copy", "count", or "equal groups": the ends of groups that share
                some dimension; the backend divides it evenly, and that is noted here.
            producer: the operator that wrote the value, "aten::mean"; empty if none did.
            dtype: of the tensor, a torch.dtype or its name in Python or C++.
            numel: how many elements are read, selected from (kind "count"), or fall to a group.
            reads: how many reads the native side counts; unused, reads are counted by line here.

        Raises:
            ValueError: an unknown kind.
        """
        del reads
        line = self._source_line()
        name = operator_name(producer)
        key = (kind, producer, line)
        use = self._uses.get(key)
        earlier = use.count if use else 0
        in_iteration = use.in_iteration if use else 0
        value = self._value(kind, producer, name, _dtype_name(dtype), numel, line, earlier, in_iteration)
        if use is None:
            use = self._uses[key] = _Use(value)
        use.count += 1
        use.in_iteration += 1
        return value

    def iteration_ended(self) -> None:
        """Reads in a row are counted anew."""
        for use in self._uses.values():
            use.in_iteration = 0

    def assume(self, kind: str, producer: str, value: Value | str, count: int = 1) -> None:
        """Note an assumption made elsewhere: zeros in a checkpoint; a sentence for the kind "model"."""
        use = self._uses.setdefault((kind, producer, self._source_line()), _Use(value))
        use.count += count

    def assumptions(self) -> list[dict[str, Any]]:
        """Every distinct use: kind, producer, count, source_line, value (the first one given)."""
        return [
            {
                "kind": kind,
                "producer": producer,
                "count": use.count,
                "source_line": line,
                "value": use.value,
            }
            for (kind, producer, line), use in self._uses.items()
        ]

    def _value(
        self,
        kind: str,
        producer: str,
        name: str,
        dtype: str,
        numel: int,
        line: str,
        earlier: int,
        in_iteration: int,
    ) -> Value:
        settings = self._settings
        if kind == "equal groups":
            return numel
        if kind == "count":
            return min(numel, max(1, int(numel * settings.selected_share)))
        if kind not in ("item", "bool", "copy"):
            raise ValueError(f"a value policy is asked for a {kind!r}, not item, bool, copy or count")
        for known_as in (producer, name):
            if known_as in settings.producers:
                return settings.producers[known_as]
        if kind == "bool" or dtype == "bool":
            return self._truth(name, in_iteration)
        one_element = kind == "item" or numel == 1
        if dtype.startswith(_FLOATING):
            if name in NORM_PRODUCERS:
                return settings.norm
            if name in SHARE_PRODUCERS:
                return settings.share
            if one_element:
                first = settings.first_loss * self._variation(line)
                return first / (1.0 + settings.loss_decay * earlier)
            return settings.copied_float * self._variation(line)
        if one_element and kind == "item" and name not in INDEX_PRODUCERS:
            return settings.item_integer
        return settings.copied_integer

    def _truth(self, name: str, in_iteration: int) -> bool:
        settings = self._settings
        if name in FALSE_PRODUCERS:
            answer = False
        elif name in TRUE_PRODUCERS:
            answer = True
        else:
            answer = settings.truth
        beyond = in_iteration - settings.patience
        # The first answer after the patience is the other one; from there they alternate.
        return answer if beyond < 0 or beyond % 2 == 1 else not answer

    def _variation(self, line: str) -> float:
        """A factor of 0.95 to 1.05 that depends on the seed and the line; 1 for seed 0."""
        if self._settings.seed == 0:
            return 1.0
        digest = hashlib.blake2b(f"{self._settings.seed}:{line}".encode(), digest_size=4).digest()
        return 0.95 + 0.1 * int.from_bytes(digest, "little") / 0xFFFFFFFF


def operator_name(producer: str) -> str:
    """`aten::linalg_vector_norm.out` → `linalg_vector_norm`; `aten::clamp_` → `clamp`."""
    name = producer.rpartition("::")[2].partition(".")[0]
    return name if name.startswith("_foreach") or not name.endswith("_") else name.rstrip("_")


def _dtype_name(dtype: Any) -> str:
    # torch.bfloat16, "bfloat16" and C++'s "BFloat16" are one dtype.
    return str(dtype).removeprefix("torch.").lower()
