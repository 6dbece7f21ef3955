"""Whether a call drew random numbers on the CPU, also where a sample restores the generator afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType

import torch


class RandomDraws:
    """A context: `happened` tells, after it, whether random numbers were drawn in it."""

    def __init__(self) -> None:
        self.happened = False

    def watch(self, utils: ModuleType) -> None:
        """Look into `wrapper_set_seed` of `torch.testing._utils`, which seeds and restores the generator."""
        restored = utils.freeze_rng_state

        @contextlib.contextmanager
        def freeze_rng_state(*arguments: object, **named: object) -> Iterator[None]:
            with restored(*arguments, **named):
                yield
                self._look(42)  # the seed of wrapper_set_seed

        utils.freeze_rng_state = freeze_rng_state  # type: ignore[attr-defined]

    def __enter__(self) -> RandomDraws:
        self.happened = False
        return self

    def __exit__(self, *_: object) -> None:
        self._look(0)

    def _look(self, seed: int) -> None:
        untouched = torch.Generator().manual_seed(seed).get_state()
        self.happened = self.happened or not torch.equal(torch.get_rng_state(), untouched)
