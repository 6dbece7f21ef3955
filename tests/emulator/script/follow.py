"""Runs scripts under a ScriptFollower with the fake backend, each in a forked process of its own.

Reads requests, one JSON object a line, on the descriptor given as the first argument and answers
each with the exit code on the second one. torch is imported once, before the first fork, as a
rank's parent does. A request: `words` ([-m] script args), `settings`, `folder`, and the files
`stdin`, `stdout`, `stderr` and `summary` (one line of JSON for each time results were written).
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from fake_native import FakeNative

from maya.emulator.script import FollowSettings, ScriptFollower, ScriptOutcome, ScriptTarget
from maya.errors import MayaError


def redirect(descriptor: int, path: str, flags: int) -> None:
    opened = os.open(path, flags, 0o644)
    os.dup2(opened, descriptor)
    os.close(opened)


def follow(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    redirect(0, request["stdin"], os.O_RDONLY)
    redirect(1, request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    redirect(2, request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    native = FakeNative()

    def write(outcome: ScriptOutcome, how: str = "abrupt") -> None:
        summary = {
            "how": how,
            "ending": outcome.ending.value,
            "exit_code": outcome.exit_code,
            "cause": outcome.cause,
            "iteration_ends": follower.iteration_ends,
            "operations": native.operations,
            "marks": native.names(),
            "assumptions": follower.assumptions(),
        }
        with Path(request["summary"]).open("a") as stream:
            stream.write(json.dumps(summary) + "\n")

    words = request["words"]
    is_module = words[0] == "-m"
    if is_module:
        del words[0]
    try:
        follower = ScriptFollower(native, FollowSettings(**request["settings"]), on_abrupt_end=write)
        outcome = follower.run(ScriptTarget(words[0], tuple(words[1:]), is_module))
    except MayaError as error:
        print(f"maya: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
    write(outcome, "normal")
    sys.exit(outcome.exit_code)


def serve(requests: int, answers: int) -> None:
    # The first optimizer imports a good part of torch; no child should have to.
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    gc.freeze()
    with open(requests) as lines, open(answers, "w") as replies:
        while line := lines.readline():
            child = os.fork()
            if child == 0:
                for descriptor in (requests, answers):
                    os.set_inheritable(descriptor, False)
                follow(json.loads(line))  # exits, through the interpreter's own shutdown
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            replies.write(f"{status}\n")
            replies.flush()


serve(int(sys.argv[1]), int(sys.argv[2]))
