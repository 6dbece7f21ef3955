"""The room's main function: from programs with costs to a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from maya.simulator.engine import run_general
from maya.simulator.inputs import RankInput, check_rank
from maya.simulator.network import NetworkModel
from maya.simulator.program import Action, compile_program
from maya.simulator.schedule import make_timeline
from maya.simulator.settings import Settings
from maya.simulator.single_stream import run_single_stream
from maya.simulator.timeline import Timeline


def simulate(
    ranks: Sequence[RankInput],
    *,
    network: NetworkModel | None = None,
    settings: Settings | None = None,
) -> Timeline:
    """Run all ranks' programs on modelled hosts and devices.

    Args:
        ranks: in any order; each rank once.
        network: how long communication takes; may be None where nothing communicates.
        settings: host and device constants; default `Settings()`.

    Returns:
        The timeline, equal for equal input to the nanosecond.

    Raises:
        ValueError: no rank, a rank twice, or columns that `check_rank` refuses.
        MayaError: a damaged trace, or a deadlock (naming who waits for what).
    """
    chosen = settings or Settings()
    ordered = sorted(ranks, key=lambda rank: rank.rank)
    if not ordered:
        raise ValueError("simulate needs at least one rank")
    for before, after in pairwise(ordered):
        if before.rank == after.rank:
            raise ValueError(f"rank {after.rank} is given twice")
    for rank in ordered:
        check_rank(rank)
    programs = [compile_program(rank, chosen) for rank in ordered]
    program = programs[0]
    if len(programs) == 1 and len(program.used_streams()) <= 1 and Action.TRANSFER not in program.actions:
        return make_timeline(programs, [run_single_stream(program, chosen)])
    return make_timeline(programs, run_general(programs, network, chosen))
