"""Imports torch once and runs each script it is sent in a fork of itself.

The emulated device belongs to a process and cannot be taken out again, so every test needs a fresh
one; a fork costs milliseconds, an import of torch seconds. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback

import torch  # noqa: F401 - what a fork is spared

import maya.emulator.torch_cuda  # noqa: F401
from maya.emulator.backend import load

SCRIPT_LIMIT_S = 200


def run_in_fork(script: str, environment: dict[str, str]) -> dict[str, object]:
    """The exit status and everything the script printed."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.environ.update(environment)
            signal.alarm(SCRIPT_LIMIT_S)
            os._exit(execute(script))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        return {"status": status, "output": output.read().decode(errors="replace")}


def execute(script: str) -> int:
    status = 0
    try:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main() -> None:
    # Whatever the scripts print must not reach the answers' pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if request["needs_backend"]:
            load()
        answers.write(json.dumps(run_in_fork(request["script"], request["environment"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
