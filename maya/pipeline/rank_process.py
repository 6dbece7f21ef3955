"""The process of one rank: `python rank_process.py SPEC.json`, started by `maya.pipeline.supervise`.

For a job of several ranks it is the process that forks them (`maya.pipeline.ranks_launcher`).

Run as a file, not with `-m`: `-m` would put the user's working directory in front, and a folder
called `maya` or `torch` there would be imported in place of ours.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from maya.errors import EXIT_FAILURE, MayaError

if TYPE_CHECKING:
    from maya.traces import DurationOracle

WHERE_SIGNAL = signal.SIGRTMIN + 7
"""Asks for the Python stacks; a real-time signal, since scripts have uses for SIGUSR1 and 2."""
WHERE_FILE = "stacks-{rank}.txt"
CRASH_FILE = "crash-{rank}.txt"
"""Stacks at a segmentation fault or abort; empty otherwise."""
RESERVE_FILE = "reserve-{rank}"
LAUNCHER = "launcher"
"""In place of a rank, in the names of these files, for the process that forks the ranks."""
RESERVE_BYTES = 1 << 16
"""Given back when something failed, so that a full disk can still be told of."""


def main() -> int:
    """Run the rank that `sys.argv[1]` describes, or launch several; the exit code is the script's own."""
    if not sys.flags.safe_path:
        del sys.path[0]  # this file's folder; the emulator puts the script's there instead
    text = Path(sys.argv[1]).read_text()
    values = json.loads(text)
    run_dir, rank = Path(values["run_dir"]), int(values["rank"])
    launches = "launch" in values
    diagnostics = open_diagnostics(run_dir, LAUNCHER if launches else str(rank))
    die_with(int(values["parent_pid"]))
    if launches:
        return _launch(values, run_dir)

    try:
        from maya.emulator import RankSpec, run_rank

        spec = RankSpec.from_json(text)
        return run_rank(spec, duration_oracle(spec.gpu)).exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT  # the parent says that it was interrupted
    except Exception as error:  # the script's own errors are in the outcome; this one is Maya's
        confess(run_dir, rank, error, verbosity=int(values.get("verbosity", 0)))
        return EXIT_FAILURE
    finally:
        del diagnostics


def _launch(values: dict[str, Any], run_dir: Path) -> int:
    """Fork the ranks. Returns in the launcher when all have ended; a rank ends its process here."""
    try:
        from maya.pipeline.ranks_launcher import RanksLauncher

        launcher = RanksLauncher(values)
        seat = launcher.fork_ranks()
        if seat is None:
            return launcher.until_all_have_ended()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        confess(run_dir, 0, error, verbosity=int(values.get("verbosity", 0)))
        return EXIT_FAILURE
    from maya.pipeline.rank_seat import leave, take_seat

    return leave(take_seat(seat))


def open_diagnostics(run_dir: Path, who: str) -> tuple[TextIO, TextIO]:
    """Have stacks written when asked for and at a crash; keep what is returned for as long.

    A handler that runs in a crash cannot open a file, so both are open from the start.
    """
    where = open(run_dir / WHERE_FILE.format(rank=who), "w")  # noqa: SIM115
    crash = open(run_dir / CRASH_FILE.format(rank=who), "w")  # noqa: SIM115
    (run_dir / RESERVE_FILE.format(rank=who)).write_bytes(b"\0" * RESERVE_BYTES)
    faulthandler.register(WHERE_SIGNAL, file=where, all_threads=True)
    faulthandler.enable(file=crash, all_threads=True)
    return where, crash


def confess(run_dir: Path, rank: int, error: Exception, *, verbosity: int = 0) -> None:
    """Write an outcome that makes the parent report `error` as its own."""
    if verbosity >= 2:
        traceback.print_exception(error)
    code = EXIT_FAILURE
    if isinstance(error, MayaError):
        message, hint, code = error.message, error.hint, error.exit_code
    else:
        message = f"{type(error).__name__}: {error}"
        hint = "this is a fault in Maya; run again with -vv for the traceback and please report it"
    if is_full_disk(error):
        message = f"no space is left for the run in {run_dir.parent}"
        hint = "free some, or choose another place with -o"
    cause = {"type": type(error).__name__, "message": message, "hint": hint}
    outcome = {"ended": "internal_error", "exit_code": code, "cause": cause}
    (run_dir / RESERVE_FILE.format(rank=rank)).unlink(missing_ok=True)
    path = run_dir / f"outcome-{rank}.json"
    partial = path.with_suffix(".json.partial")
    try:
        partial.write_text(json.dumps(outcome) + "\n")
        partial.replace(path)
    except OSError:  # not even that much space; the parent will only know that we ended
        print(f"maya: error: {message}", file=sys.stderr)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error is, or comes from, a disk without space or a used-up quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def die_with(parent_pid: int) -> None:
    """Have the kernel end this process when its parent ends, however that ends (Linux)."""
    import ctypes
    import os

    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, prctl(2)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it ended before we asked
            os.kill(os.getpid(), signal.SIGKILL)


class PatientOracle:
    """A duration oracle whose failure stops the script's device clock, not the script.

    The same failure comes up again when the trace is priced, and is reported there.
    """

    def __init__(self, oracle: DurationOracle) -> None:
        self._oracle: DurationOracle | None = oracle

    def duration_ns(self, operator: str, metadata_json: str) -> int:
        """As `DurationOracle`; 0 from the first failure on."""
        if self._oracle is None:
            return 0
        try:
            return self._oracle.duration_ns(operator, metadata_json)
        except Exception as error:
            self._oracle = None
            problem = f"{operator} cannot be priced ({type(error).__name__}: {error})"
            print(f"maya: warning: {problem}; the script's GPU clock stands still", file=sys.stderr)
            return 0


def duration_oracle(gpu: str) -> DurationOracle:
    """The device clock of the emulated GPU, answered by the kernel models."""
    from maya.hardware import find_gpu
    from maya.kernel_models import ModelOracle, RooflineModel

    return PatientOracle(ModelOracle(RooflineModel(), find_gpu(gpu)))


if __name__ == "__main__":
    sys.exit(main())
