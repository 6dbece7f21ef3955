"""torchrun's command line, read without torch: what `maya run -- torchrun ...` is to do.

The options are those of `torch/distributed/run.py` of torch 2.13 and 2.14, of which each is obeyed,
checked and without effect here, or refused; as there, dashes and underscores are alike, options may
be shortened, and `PET_NAME` in the environment stands for `--name`.
"""

from __future__ import annotations

import argparse
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from maya.errors import UsageError
from maya.pipeline.launch import Launch

MODULES = {"torch.distributed.run": False, "torch.distributed.launch": True, "torchrun": False}
"""Modules that are launchers → whether they pass `--local-rank` to the script unless told otherwise."""
OTHER_LAUNCHERS = frozenset({"accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun"})
NO_EFFECT = {
    "--rdzv-backend": str,
    "--rdzv-conf": str,
    "--monitor-interval": float,
    "--event-log-handler": str,
    "--node-rank": int,
    "--local-addr": str,
    "--shutdown-timeout": int,
    "--signals-to-handle": str,
    "--duplicate-stdout-filters": str,
    "--duplicate-stderr-filters": str,
    "--numa-binding": str,
}
"""Options about machines and processes that are not emulated → how torchrun reads them."""
REFUSED = {
    "--no-python": "Maya emulates the GPU inside Python; give it the Python script",
    "--logs-specs": "log plug-ins of torchrun are not loaded; leave it out",
    "--local-ranks-filter": "ranks are not silenced one by one; --redirects sends their output to files",
}
STANDARD_STREAMS = 3
"""torchrun's `Std.ALL`: 1 is stdout, 2 stderr."""


@dataclass(frozen=True)
class TorchrunLine:
    """What a torchrun command line asks for.

    Attributes:
        nnodes: nodes; of a range MIN:MAX the most.
        nproc_per_node: a number, or "gpu", "auto", "cpu".
        program: the script or module and its arguments.
        is_module: the program is a module's name.
        launch: everything else; its counts are of no meaning yet.
        redirects, tee: as written, one number for all local ranks or `0:1,1:2`.
        fewest_nodes: MIN of the range.
    """

    nnodes: int
    nproc_per_node: str
    program: tuple[str, ...]
    is_module: bool
    launch: Launch
    redirects: str
    tee: str
    fewest_nodes: int


def words_of_launcher(words: Sequence[str], *, is_module: bool) -> tuple[list[str], bool] | None:
    """The launcher's own arguments if a command line starts with one, and its `--local-rank` habit.

    Known are `torchrun ...`, `python [-u] -m torch.distributed.run ...` and `-m torch.distributed.run`.

    Args:
        words: the command, without Maya's options.
        is_module: the first word is a module's name (`maya run -m`).

    Raises:
        UsageError: it starts with a launcher that Maya does not know.
    """
    first = os.path.basename(words[0]) if words else ""
    if is_module:
        return (list(words[1:]), MODULES[first]) if first in MODULES else None
    if first == "torchrun":
        return list(words[1:]), False
    if first in OTHER_LAUNCHERS and not os.path.exists(words[0]):
        raise UsageError(
            f"`{first}` is not a launcher that Maya follows",
            hint="give the script itself: maya run --nproc-per-node 8 script.py",
        )
    if re.fullmatch(r"python[\d.]*", first):
        rest = _without_python_options(words[1:])
        if len(rest) >= 2 and rest[0] == "-m" and rest[1] in MODULES:
            return rest[2:], MODULES[rest[1]]
    return None


def without_python(words: Sequence[str]) -> tuple[list[str], bool]:
    """`python [-u] script.py` and `python -m module` without the interpreter; whether it is a module."""
    if words and re.fullmatch(r"python[\d.]*", os.path.basename(words[0])) and len(words) > 1:
        rest = _without_python_options(words[1:])
        if rest[:1] == ["-m"]:
            return rest[1:], True
        return rest, False
    return list(words), False


def _without_python_options(words: Sequence[str]) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        if rest[0] in ("-u", "-B", "-O", "-OO", "-s", "-E"):
            rest.pop(0)
        elif rest[0] in ("-W", "-X") and len(rest) > 1:
            del rest[:2]
        elif rest[0].startswith(("-W", "-X")):
            rest.pop(0)
        else:
            raise UsageError(
                f"`python {rest[0]}` is not followed",
                hint="give the script, or `-m module`, without options of the interpreter",
            )
    return rest


def parse(words: Sequence[str], *, passes_local_rank: bool, environment: Mapping[str, str]) -> TorchrunLine:
    """Read torchrun's arguments.

    Args:
        words: what follows `torchrun`.
        passes_local_rank: as `torch.distributed.launch` does unless it gets --use-env.
        environment: for `PET_...`.

    Raises:
        UsageError: an option that torchrun does not have, that has no such value, or is refused.
    """
    options = _parser(environment, has_use_env=passes_local_rank).parse_args([*words])
    for name, reason in REFUSED.items():
        if getattr(options, _field(name)) not in (None, False, ""):
            raise UsageError(f"torchrun's {name} is not supported", hint=reason)
    fewest, most = nodes(options.nnodes, "torchrun's --nnodes")
    program = (options.training_script, *options.training_script_args)
    port = options.master_port
    if options.rdzv_endpoint:
        port = _port_of(options.rdzv_endpoint)
    local = options.standalone or (most == 1 and not options.rdzv_endpoint and port is None)
    run_id = options.rdzv_id
    if options.standalone or (local and options.rdzv_backend == "static"):
        run_id, port = run_id_of(program), None
    return TorchrunLine(
        nnodes=most,
        nproc_per_node=options.nproc_per_node,
        program=program,
        is_module=options.module,
        launch=Launch(
            nproc_per_node=1,
            run_id=run_id,
            role=options.role,
            max_restarts=options.max_restarts,
            master_port=port or None,
            local_rank_argument=passes_local_rank and not options.use_env,
            virtual_local_rank=options.virtual_local_rank,
            log_dir=options.log_dir,
        ),
        redirects=options.redirects,
        tee=options.tee,
        fewest_nodes=fewest,
    )


def run_id_of(program: Sequence[str]) -> str:
    """torchrun's id of a job on one node: a random UUID there, here the same for the same command."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, " ".join(program)))


def standalone(program: Sequence[str], *, is_module: bool, nproc_per_node: str, nnodes: int) -> TorchrunLine:
    """What `torchrun --standalone` with these counts asks for."""
    return TorchrunLine(
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        program=tuple(program),
        is_module=is_module,
        launch=Launch(nproc_per_node=1, run_id=run_id_of(program)),
        redirects="0",
        tee="0",
        fewest_nodes=nnodes,
    )


def streams_of(text: str, option: str, nproc_per_node: int) -> tuple[int, ...]:
    """torchrun's `Std.from_str` for each local rank: `3`, or `0:1,1:2` for some.

    Raises:
        UsageError: it is neither.
    """
    pairs = [part.split(":") for part in text.split(",")]
    try:
        if len(pairs) == 1 and len(pairs[0]) == 1:
            values = [int(text)] * nproc_per_node
        else:
            chosen = {int(rank): int(value) for rank, value in pairs}
            values = [chosen.get(rank, 0) for rank in range(nproc_per_node)]
    except ValueError:
        values = [-1]
    if any(not 0 <= value <= STANDARD_STREAMS for value in values):
        raise UsageError(
            f"torchrun's {option} {text} is neither 0, 1, 2 or 3 nor of the form 0:1,1:2",
            hint="1 is stdout, 2 stderr, 3 both; RANK:VALUE for single local ranks",
        )
    return tuple(values) if any(values) else ()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"torchrun: {message}",
            hint="Maya reads torchrun's options itself; they stand before the script",
        )


def _parser(environment: Mapping[str, str], *, has_use_env: bool) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="torchrun", description="torchrun's options as `maya run` understands them.", allow_abbrev=True
    )

    def add(name: str, kind: Callable[[str], object], default: object, *short: str) -> None:
        preset = environment.get(f"PET_{_field(name).upper()}", default)
        parser.add_argument(*short, *_spellings(name), type=kind, default=preset)

    def flag(name: str, *short: str) -> None:
        preset = environment.get(f"PET_{_field(name).upper()}", "0") not in ("0", "")
        parser.add_argument(*short, *_spellings(name), action="store_true", default=preset)

    add("--nnodes", str, "1:1")
    add("--nproc-per-node", str, "1")
    add("--rdzv-endpoint", str, "")
    add("--rdzv-id", str, "none")
    flag("--standalone")
    add("--max-restarts", _not_negative, 0)
    add("--role", str, "default")
    add("--log-dir", str, None)
    add("--redirects", str, "0", "-r")
    add("--tee", str, "0", "-t")
    add("--master-addr", str, "127.0.0.1")
    add("--master-port", int, None)
    flag("--module", "-m")
    flag("--run-path")
    if has_use_env:
        flag("--use-env")
    flag("--virtual-local-rank")
    parser.add_argument("--start-method", "--start_method", choices=("spawn", "fork", "forkserver"))
    defaults: dict[str, object] = {"--rdzv-backend": "static"}
    for name, kind in NO_EFFECT.items():
        add(name, kind, defaults.get(name))
    for name in REFUSED:
        if name == "--no-python":
            flag(name)
        else:
            add(name, str, None)
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys((name, "--" + name[2:].replace("-", "_"))))


def _field(name: str) -> str:
    return name[2:].replace("-", "_")


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def nodes(text: str, option: str) -> tuple[int, int]:
    """MIN and MAX of `--nnodes`: `2` or `1:4`.

    Raises:
        UsageError: it is neither.
    """
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < fewest <= most:
        raise UsageError(
            f"{option} {text} is no number of nodes",
            hint="examples: --nnodes 2, --nnodes 1:4",
        )
    return fewest, most


def _port_of(endpoint: str) -> int | None:
    port = endpoint.rpartition(":")[2] if ":" in endpoint else ""
    return int(port) if port.isdigit() else None
