"""From the words of `maya run` to the job: which program, on how many ranks, seeing how many GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from maya.cli import torchrun
from maya.errors import UsageError
from maya.hardware import all_clusters, find_gpu
from maya.pipeline.launch import MOST_RANKS, Launch

USUAL_GPUS_PER_NODE = 8
"""Of servers whose GPU is in no cluster of the catalogue: HGX and DGX boards hold eight."""


@dataclass(frozen=True)
class Counts:
    """`--nproc-per-node` and `--nnodes` of `maya run` as written, None where left out."""

    nproc_per_node: str | None = None
    nnodes: str | None = None


@dataclass(frozen=True)
class Job:
    """What is to run.

    Attributes:
        program: script or module and its arguments.
        is_module: the program is a module's name.
        launch: the ranks; None for a plain process.
        visible_gpus: GPUs that each process sees.
        notes: what the user should know before it runs.
    """

    program: tuple[str, ...]
    is_module: bool
    launch: Launch | None
    visible_gpus: int
    notes: tuple[str, ...] = ()


def job_of(
    words: Sequence[str],
    *,
    is_module: bool,
    counts: Counts,
    gpu: str,
    visible_gpus: int | None,
    environment: Mapping[str, str],
) -> Job:
    """Read a command line's program, which may be torchrun with a program of its own.

    Args:
        words: what follows Maya's options.
        is_module: `-m` stood before them.
        counts: Maya's own options for ranks.
        gpu: catalogue name or alias.
        visible_gpus: `--visible-gpus`, None if left out.
        environment: torchrun reads some defaults from it.

    Raises:
        UsageError: see its message.
    """
    words = list(words[1:] if words and words[0] == "--" else words)
    launcher = torchrun.words_of_launcher(words, is_module=is_module)
    if launcher is None:
        if not is_module:
            words, is_module = torchrun.without_python(words)
        if counts == Counts():
            return Job(tuple(words), is_module, None, visible_gpus or 1)
        most = 1 if counts.nnodes is None else torchrun.nodes(counts.nnodes, "--nnodes")[1]
        line = torchrun.standalone(
            words, is_module=is_module, nproc_per_node=counts.nproc_per_node or "1", nnodes=most
        )
        option = "--nproc-per-node"
    else:
        if counts != Counts():
            raise UsageError(
                "the number of ranks is given to `maya run` and to torchrun",
                hint="leave --nproc-per-node and --nnodes to torchrun, or give the script without torchrun",
            )
        arguments, passes_local_rank = launcher
        line = torchrun.parse(arguments, passes_local_rank=passes_local_rank, environment=environment)
        option = "torchrun's --nproc-per-node"
    node_gpus = gpus_of_node(gpu)
    nproc = _nproc(line.nproc_per_node, option, visible_gpus or node_gpus)
    world = line.nnodes * nproc
    if world > MOST_RANKS:
        raise UsageError(
            f"{line.nnodes} node{'s' * (line.nnodes > 1)} of {nproc} ranks are {world} ranks; this version "
            f"of Maya runs at most {MOST_RANKS}",
            hint="every rank is a real process here; later versions run only those that differ",
        )
    launch = replace(
        line.launch,
        nproc_per_node=nproc,
        nnodes=line.nnodes,
        redirects=torchrun.streams_of(line.redirects, "--redirects", nproc),
        tee=torchrun.streams_of(line.tee, "--tee", nproc),
    )
    return Job(
        line.program,
        line.is_module,
        launch,
        visible_gpus or nproc,
        tuple(_notes(line, nproc, node_gpus, visible_gpus, gpu)),
    )


def gpus_of_node(gpu: str) -> int:
    """GPUs that a server of this kind of GPU holds."""
    name = find_gpu(gpu).name
    return max(
        (entry.gpus_per_node for entry in all_clusters() if entry.gpu == name), default=USUAL_GPUS_PER_NODE
    )


def _nproc(text: str, option: str, gpus: int) -> int:
    """Ranks of a node; `gpu` and `auto` are the GPUs it has, `cpu` this machine's processors."""
    if text in ("gpu", "auto"):
        return gpus
    if text == "cpu":
        return len(os.sched_getaffinity(0))
    if not text.isdigit() or int(text) == 0:
        raise UsageError(
            f"{option} {text} is no number of ranks", hint="a number of at least 1, or gpu, auto, cpu"
        )
    return int(text)


def _notes(
    line: torchrun.TorchrunLine, nproc: int, node_gpus: int, visible_gpus: int | None, gpu: str
) -> list[str]:
    notes = []
    if line.fewest_nodes < line.nnodes:
        notes.append(f"of {line.fewest_nodes} to {line.nnodes} nodes, all {line.nnodes} take part")
    if nproc > node_gpus:
        notes.append(
            f"{nproc} ranks on a node are more than the {node_gpus} GPUs that a server of "
            f"{find_gpu(gpu).name} usually holds"
        )
    if visible_gpus is not None and visible_gpus < nproc:
        notes.append(
            f"--visible-gpus {visible_gpus} leaves {nproc - visible_gpus} ranks without their own GPU"
        )
    return notes
