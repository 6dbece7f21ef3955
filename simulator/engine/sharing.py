"""How much kernels that run at the same time slow one another.

Each kernel says what share of its GPU's SMs, HBM bandwidth and links it uses when alone. Where the
shares of a resource add up to more than 1, every kernel that uses it gets in proportion to what it
asks for: it is stretched by that sum. A kernel is as slow as its scarcest resource makes it. Sums up
to 1 cost nothing. (Proportional sharing, as hardware arbiters do between equal requesters.)
"""

from __future__ import annotations

from maya.simulator.engine.state import Job
from maya.simulator.inputs import SHARE_TOLERANCE


def slowdowns(active: list[Job], network_shares_links: bool) -> list[float]:
    """Factor >= 1 by which each job's remaining time is stretched, in the order given."""
    full = 1.0 + SHARE_TOLERANCE
    if len(active) == 1:
        return [1.0]
    sm = hbm = link = 0.0
    for job in active:
        sm += job.sm
        hbm += job.hbm
        if job.meeting is None or not network_shares_links:
            link += job.link
    if sm <= full and hbm <= full and link <= full:
        return [1.0] * len(active)
    factors = []
    for job in active:
        factor = 1.0
        if job.sm > 0.0 and sm > full:
            factor = sm
        if job.hbm > 0.0 and hbm > full and hbm > factor:
            factor = hbm
        if job.link > 0.0 and link > full and link > factor and not (job.meeting and network_shares_links):
            factor = link
        factors.append(factor)
    return factors
