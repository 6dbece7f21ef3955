"""Runs a script under a ScriptFollower with the fake backend, for tests that need a process.

    python follow.py SETTINGS_JSON [-m] script.py args...

The environment's FOLLOW_SUMMARY names the file that the results are written to; the test sees
in it whether, and how often, results were written.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fake_native import FakeNative

from maya.emulator.script import FollowSettings, ScriptFollower, ScriptOutcome, ScriptTarget
from maya.errors import MayaError

summary_path = Path(os.environ["FOLLOW_SUMMARY"])
native = FakeNative()


def write(outcome: ScriptOutcome, how: str = "abrupt") -> None:
    with summary_path.open("a") as stream:
        summary = {
            "how": how,
            "ending": outcome.ending.value,
            "exit_code": outcome.exit_code,
            "cause": outcome.cause,
            "iteration_ends": follower.iteration_ends,
            "marks": native.names(),
            "assumptions": follower.assumptions(),
            "pid": os.getpid(),
        }
        stream.write(json.dumps(summary) + "\n")


settings = json.loads(sys.argv[1])
arguments = sys.argv[2:]
is_module = arguments[0] == "-m"
if is_module:
    del arguments[0]
follower = ScriptFollower(native, FollowSettings(**settings), on_abrupt_end=write)
try:
    outcome = follower.run(ScriptTarget(arguments[0], tuple(arguments[1:]), is_module))
except MayaError as error:
    print(f"maya: {error.message}", file=sys.stderr)
    sys.exit(error.exit_code)
write(outcome, "normal")
sys.exit(outcome.exit_code)
