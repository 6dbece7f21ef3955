"""torchrun's command lines and Maya's own --nproc-per-node, read without torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from maya.cli.job_of_ranks import Counts, Job, job_of
from maya.cli.torchrun import streams_of
from maya.errors import UsageError
from maya.pipeline.launch import Launch

GPU = "H100-SXM5-80GB"


def job(
    line: str,
    *,
    counts: Counts | None = None,
    is_module: bool = False,
    visible: int | None = None,
    environment: dict[str, str] | None = None,
    gpu: str = GPU,
) -> Job:
    return job_of(
        line.split(),
        is_module=is_module,
        counts=counts or Counts(),
        gpu=gpu,
        visible_gpus=visible,
        environment=environment or {},
    )


def launch_of(line: str, **options: object) -> Launch:
    found = job(line, **options).launch  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_plain_script_is_no_launch() -> None:
    assert job("train.py --lr 3") == Job(("train.py", "--lr", "3"), False, None, 1)
    assert job("pkg.train --lr 3", is_module=True) == Job(("pkg.train", "--lr", "3"), True, None, 1)
    assert job("train.py", visible=4).visible_gpus == 4


@pytest.mark.parametrize(
    ("line", "nodes", "ranks"),
    [
        ("torchrun train.py", 1, 1),
        ("torchrun --nproc-per-node 4 train.py", 1, 4),
        ("torchrun --nproc-per-node=4 train.py", 1, 4),
        ("torchrun --nproc_per_node=4 train.py", 1, 4),
        ("torchrun --nproc-per 4 train.py", 1, 4),
        ("torchrun --nproc-per-node gpu train.py", 1, 8),
        ("torchrun --nproc-per-node auto train.py", 1, 8),
        ("torchrun --nnodes 2 --nproc-per-node 4 train.py", 2, 4),
        ("torchrun --nnodes 1:2 --nproc-per-node 4 train.py", 2, 4),
        ("torchrun --standalone --nproc-per-node 2 train.py", 1, 2),
        ("/opt/venv/bin/torchrun --nproc-per-node 2 train.py", 1, 2),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", 1, 2),
        ("python3.11 -u -m torch.distributed.launch --nproc-per-node 2 train.py", 1, 2),
        ("-- torchrun --nproc-per-node 2 train.py", 1, 2),
    ],
)
def test_counts(line: str, nodes: int, ranks: int) -> None:
    found = job(line)
    assert found.launch is not None
    assert (found.launch.nnodes, found.launch.nproc_per_node) == (nodes, ranks)
    assert (found.program, found.visible_gpus) == (("train.py",), ranks)


def test_ranks_of_a_node_follow_the_machine_of_the_gpu() -> None:
    assert launch_of("torchrun --nproc-per-node gpu train.py", visible=3).nproc_per_node == 3
    cpus = len(os.sched_getaffinity(0))
    assert launch_of("torchrun --nproc-per-node cpu train.py").nproc_per_node == cpus


def test_options_behind_the_script_are_the_scripts() -> None:
    found = job("torchrun --nproc-per-node 2 train.py --nproc-per-node 9 -m x --lr=3")
    assert found.program == ("train.py", "--nproc-per-node", "9", "-m", "x", "--lr=3")


def test_a_module_behind_torchrun() -> None:
    found = job("torchrun --nproc-per-node 2 -m pkg.train --lr 3")
    assert (found.program, found.is_module) == (("pkg.train", "--lr", "3"), True)
    assert job("torch.distributed.run --nproc-per-node 2 train.py", is_module=True).launch is not None


def test_the_old_launcher_passes_the_local_rank() -> None:
    old = launch_of("python -m torch.distributed.launch --nproc-per-node 2 train.py")
    assert old.program(3, ("train.py", "--lr", "3")) == ("train.py", "--local-rank=1", "--lr", "3")
    new = launch_of("python -m torch.distributed.launch --use-env --nproc-per-node 2 train.py")
    assert new.program(1, ("train.py",)) == ("train.py",)


def test_the_environment_presets_options_as_for_torchrun() -> None:
    presets = {"PET_NPROC_PER_NODE": "4", "PET_NNODES": "2"}
    assert launch_of("torchrun train.py", environment=presets).world_size == 8
    assert launch_of("torchrun --nproc-per-node 2 train.py", environment=presets).world_size == 4


def test_other_options() -> None:
    line = "torchrun --nproc-per-node 2 --max-restarts 3 --role worker --rdzv-id 17 --rdzv-backend c10d"
    found = launch_of(f"{line} --rdzv-endpoint localhost:29511 --monitor-interval 0.5 train.py")
    assert (found.max_restarts, found.role, found.run_id, found.master_port) == (3, "worker", "17", 29511)
    assert launch_of("torchrun --master-port 29512 --nproc-per-node 2 train.py").master_port == 29512
    redirected = launch_of("torchrun --nproc-per-node 2 -r 1:3 --tee 0:1 --log-dir logs train.py")
    assert (redirected.redirects, redirected.tee, redirected.log_dir) == ((0, 3), (1, 0), "logs")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torchrun --nproc-pre-node 2 train.py", "unrecognized arguments"),
        ("torchrun --nproc-per-node two train.py", "is no number of ranks"),
        ("torchrun --nproc-per-node 0 train.py", "is no number of ranks"),
        ("torchrun --nnodes 3:1 train.py", "is no number of nodes"),
        ("torchrun --no-python --nproc-per-node 2 train.sh", "--no-python is not supported"),
        ("torchrun --max-restarts -1 train.py", "torchrun"),
        ("torchrun --tee 7 --nproc-per-node 2 train.py", "neither 0, 1, 2 or 3"),
        ("torchrun --nnodes 4 --nproc-per-node 8 train.py", "at most 16"),
        ("torchrun", "required"),
        ("accelerate launch train.py", "not a launcher that Maya follows"),
        ("deepspeed train.py", "not a launcher that Maya follows"),
    ],
)
def test_mistakes_are_named(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        job(line)


def test_the_number_of_ranks_is_given_once() -> None:
    with pytest.raises(UsageError, match="given to `maya run` and to torchrun"):
        job("torchrun --nproc-per-node 2 train.py", counts=Counts("2", None))


def test_mayas_own_options() -> None:
    found = job("train.py --lr 3", counts=Counts("4", None))
    assert found.launch is not None
    assert (found.launch.world_size, found.program, found.visible_gpus) == (4, ("train.py", "--lr", "3"), 4)
    nodes = job("train.py", counts=Counts("2", "3")).launch
    assert nodes is not None
    assert (nodes.nnodes, nodes.world_size) == (3, 6)
    assert job("pkg.train", counts=Counts("2", None), is_module=True).is_module


def test_what_is_unusual_is_told() -> None:
    (note,) = job("torchrun --nproc-per-node 12 train.py").notes
    assert "12 ranks on a node are more than the 8 GPUs" in note
    assert any(
        "1 ranks without" in note for note in job("train.py", counts=Counts("2", None), visible=1).notes
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("0", ()), ("3", (3, 3)), ("1:2", (0, 2)), ("0:1,1:2", (1, 2))]
)
def test_streams(text: str, expected: tuple[int, ...]) -> None:
    assert streams_of(text, "--tee", 2) == expected


def test_the_command_line_is_read_without_torch() -> None:
    code = (
        "import sys; from maya.cli.job_of_ranks import Counts, job_of;"
        "job_of(['torchrun', '--nproc-per-node', '2', 'x.py'], is_module=False, counts=Counts(),"
        "gpu='H100-SXM5-80GB', visible_gpus=None, environment={}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
