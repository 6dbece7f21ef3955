"""What a forked process does to become a rank: environment, streams, signals, then the script."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TextIO

from maya.errors import EXIT_FAILURE, MayaError
from maya.pipeline import rank_process
from maya.pipeline.rank_link import EXIT_ENDED, EndNotice, RankSide
from maya.traces import Ended

if TYPE_CHECKING:
    from maya.emulator import RankOutcome, RankSpec
    from maya.traces import DurationOracle

STDOUT, STDERR = 1, 2
"""Bits of torchrun's `Std`, and at the same time the descriptors."""


@dataclass(frozen=True)
class Seat:
    """A rank about to begin, in its own process.

    Attributes:
        spec: which rank, and what it runs.
        oracle: the clock of its emulated GPU.
        native: the device, installed by the launcher.
        line: to the launcher.
        launcher_pid: its parent.
        environment: what torchrun would add.
        mask: signals that were blocked before the launcher blocked its own.
        streams: files for descriptor 1 and 2, for those that are redirected.
    """

    spec: RankSpec
    oracle: DurationOracle
    native: ModuleType
    line: RankSide
    launcher_pid: int
    environment: dict[str, str]
    mask: set[int | signal.Signals]
    streams: dict[int, Path]


def take_seat(seat: Seat) -> int:
    """Run the rank to its end; the exit code is the script's own."""
    from maya.emulator import ForkedRank

    rank_process.die_with(seat.launcher_pid)
    run_dir, number = seat.spec.run_dir, seat.spec.rank
    diagnostics = rank_process.open_diagnostics(run_dir, str(number))
    os.environ.update(seat.environment)
    for descriptor, path in seat.streams.items():
        with path.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), descriptor)
    for stream in (sys.stdout, sys.stderr):
        _by_lines(stream)
    if "numpy.random" in sys.modules:  # Python's own generator is seeded anew in a fork, NumPy's is not
        sys.modules["numpy.random"].seed()

    def tell(outcome: RankOutcome) -> None:
        notice = EndNotice(outcome.ended, outcome.exit_code)
        seat.line.tell(notice, stay=outcome.ended is Ended.STOPPED)

    rank = ForkedRank(seat.spec, seat.oracle, seat.native, tell)
    seat.line.listen(
        lambda stopped: rank.end_process(exit_code=0 if stopped else EXIT_ENDED, stopped=stopped)
    )
    signal.pthread_sigmask(signal.SIG_SETMASK, seat.mask)
    try:
        return rank.run().exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # the script's own errors are in the outcome; this one is Maya's
        rank_process.confess(run_dir, number, error, verbosity=seat.spec.verbosity)
        code = error.exit_code if isinstance(error, MayaError) else EXIT_FAILURE
        seat.line.tell(EndNotice(Ended.INTERNAL_ERROR, code), stay=False)
        return EXIT_FAILURE
    finally:
        del diagnostics


def leave(exit_code: int) -> NoReturn:
    """End the rank's process as the interpreter would, but for taking itself apart.

    Emptying every module would copy all the memory that ranks share with their launcher: 140 MiB and
    0.3 s of CPU time each, for nothing.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or its reader is gone
            stream.flush()
    os._exit(exit_code)


def _by_lines(stream: TextIO) -> None:
    """Whole lines, as soon as they are: torchrun's workers run unbuffered, and their lines interleave.

    So do ours under PYTHONUNBUFFERED, unless `write_through` is taken back.
    """
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True, write_through=False)
