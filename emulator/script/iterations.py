"""Where an iteration ends: groups of optimizers that step once per pass of the loop.

A training loop may step several optimizers (a GAN's two, one per parameter when the optimizer
runs inside backward). They belong to one iteration, and which ones do is learned: a group is
over when one of its members steps again, and from then on already when the same members have
stepped as in the group before, so that a run can be stopped right after its last step.
"""

from __future__ import annotations


class IterationTracker:
    """Turns optimizer steps into iteration ends. Knows nothing of torch.

    Attributes:
        iteration_ends: ids of the operations after which each iteration ends, ascending.
    """

    def __init__(self, wanted: int | None) -> None:
        """Args: wanted: how many iterations are to run (warm-up included), None for all."""
        if wanted is not None and wanted < 1:
            raise ValueError(f"wanted is {wanted}, but at least 1 iteration has to run")
        self.iteration_ends: list[int] = []
        self.optimizer_steps = 0
        self._wanted = wanted
        self._group: set[int] = set()
        self._group_end = -1
        self._usual: set[int] = set()

    @property
    def completed(self) -> int:
        """How many iterations are known to have ended."""
        return len(self.iteration_ends)

    @property
    def enough(self) -> bool:
        """Whether the wanted number of iterations has run."""
        return self._wanted is not None and self.completed >= self._wanted

    def starting(self, optimizer: int) -> bool:
        """An optimizer is about to step. Returns whether that shows an iteration to have ended."""
        if optimizer not in self._group:
            return False
        self._close()
        return True

    def stepped(self, optimizer: int, last_operation: int) -> bool:
        """An optimizer has stepped (or its GradScaler skipped the step).

        Args:
            optimizer: identity of the optimizer.
            last_operation: id of the step's last operation.

        Returns:
            Whether that ended an iteration.
        """
        self.optimizer_steps += 1
        self.starting(optimizer)
        self._group.add(optimizer)
        self._group_end = last_operation
        if len(self._group) == len(self._usual) and self._group == self._usual:
            self._close()
            return True
        return False

    def iteration_ended(self, last_operation: int) -> None:
        """A function named by `--step-marker` returned: an iteration ends, whatever stepped."""
        self._group.clear()
        self.iteration_ends.append(last_operation)

    def finish(self) -> None:
        """The script has ended: the last group counts, unless it lacks members it used to have."""
        if self._group and not self._group < self._usual:
            self._close()
        self._group = set()

    def _close(self) -> None:
        self.iteration_ends.append(self._group_end)
        # Never shrinks: a critic that steps five times a loop must not hide the whole group.
        if len(self._group) >= len(self._usual):
            self._usual = self._group
        self._group = set()
