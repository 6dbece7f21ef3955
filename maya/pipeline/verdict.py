"""What became of a run, in one word and one sentence, and the exit code that goes with it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from maya.errors import EXIT_FAILURE
from maya.pipeline.outcome import OutOfMemory, RankOutcome
from maya.reports.amounts import format_bytes
from maya.reports.prediction import FAILED, OK, OOM
from maya.traces import Ended

MESSAGE_SHOWN = 300
"""Characters of an exception's message; the script's own traceback has all of it."""
LAYER_INDEX = re.compile(r"\.\d+(?=\.|$)")
"""Layers of one kind are added up: no single one of a hundred equal layers holds much."""
HELD_SHOWN = 3
"""How many holders of memory the sentence names."""
SIGNAL_EXIT_BASE = 128
"""A shell reports a command that signal n ended as 128 + n."""


@dataclass(frozen=True)
class Verdict:
    """`verdict` and `cause` of a prediction, and the exit code of `maya run`."""

    verdict: str
    cause: str | None
    exit_code: int


KINDS = {"forward": "activations", "recompute": "recomputed activations", "backward": "backward"}
"""What memory taken in a phase is, where it has a name of its own."""


def judge(outcome: RankOutcome) -> Verdict:
    """A script that ends by itself passes its own code through; stopped is 0; the rest is 1."""
    code = outcome.exit_code
    after = f"after {_iterations(outcome.iterations)}"
    if outcome.ended == Ended.OOM or (outcome.oom is not None and outcome.iterations == 0):
        sentence = oom_sentence(outcome)
        if outcome.ended != Ended.OOM:
            sentence += "; the script caught the error and ended without an iteration"
            return Verdict(OOM, sentence, code)
        return Verdict(OOM, sentence, EXIT_FAILURE)
    if outcome.ended == Ended.EXCEPTION:
        return Verdict(FAILED, f"{_exception(outcome)} {after}", code or EXIT_FAILURE)
    if outcome.ended == Ended.INTERNAL_ERROR:
        return Verdict(FAILED, _exception(outcome), EXIT_FAILURE)
    if outcome.ended == Ended.INTERRUPTED:
        return Verdict(FAILED, f"interrupted {after}", SIGNAL_EXIT_BASE + signal.SIGINT)
    if outcome.ended == Ended.EXIT and code != 0:
        return Verdict(FAILED, f"the script exited with code {code} {after}", code)
    caught = f"caught by the script: {oom_sentence(outcome)}" if outcome.oom is not None else None
    return Verdict(OK, caught, 0 if outcome.ended == Ended.STOPPED else code)


def oom_sentence(outcome: RankOutcome) -> str:
    """Names the allocation, the module that asked, and what else is held."""
    failed = outcome.oom
    if failed is None:
        return "out of memory"
    where = f" in {failed.module}" if failed.module else ""
    if failed.source_line:
        where += f" at {failed.source_line}"
    text = f"out of memory: an allocation of {format_bytes(failed.requested_bytes)}{where} does not fit"
    if outcome.memory is not None:
        text += f" in {format_bytes(outcome.memory.capacity)}"
    return text + _held(failed)


def signal_name(number: int) -> str:
    """`SIGKILL`, or `signal 77` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _held(failed: OutOfMemory) -> str:
    """What the memory is for, then who holds most; layers of one stack are added up."""
    kinds: dict[str, int] = {}
    owners: dict[tuple[str, str], int] = {}
    for held in failed.held:
        kind = KINDS.get(held.phase, held.phase or "other")
        owner = (LAYER_INDEX.sub(".*", held.module) or "outside of modules", kind)
        kinds[kind] = kinds.get(kind, 0) + held.bytes
        owners[owner] = owners.get(owner, 0) + held.bytes
    if not owners:
        return ""
    by_kind = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    by_owner = sorted(owners.items(), key=lambda item: (-item[1], item[0]))[:HELD_SHOWN]
    what = ", ".join(f"{format_bytes(size)} {kind}" for kind, size in by_kind)
    who = ", ".join(f"{format_bytes(size)} {module} ({kind})" for (module, kind), size in by_owner)
    return f"; held: {what}; most by {who}"


def _exception(outcome: RankOutcome) -> str:
    cause = outcome.cause or {}
    message = " ".join(str(cause.get("message") or "").split())
    if len(message) > MESSAGE_SHOWN:
        message = message[: MESSAGE_SHOWN - 3] + "..."
    text = f"{cause.get('type') or 'exception'}: {message}".rstrip(": ")
    line = cause.get("source_line")
    return f"{text} ({line})" if line else text


def _iterations(count: int) -> str:
    return f"{count} iteration{'' if count == 1 else 's'}"
