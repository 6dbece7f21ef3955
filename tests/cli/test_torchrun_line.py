"""torchrun's command line means here what it means to torchrun itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from maya.cli import torchrun
from maya.cli.job_of_ranks import Counts, Job, job_of
from maya.errors import UsageError

LINES = [
    "train.py",
    "--nproc-per-node 4 train.py --lr 3",
    "--nproc_per_node=4 train.py --nproc-per-node 9",
    "--nproc-per-node=2 --nnodes=2 --rdzv-id=job --rdzv-endpoint=host:29400 --rdzv-backend=c10d train.py",
    "--nnodes 1:4 --nproc_per_node 2 --rdzv_endpoint host:29400 --rdzv_id 77 train.py",
    "--standalone --nproc-per-node 8 --max-restarts 3 train.py a b",
    "--nproc-per 2 --master_p 1234 train.py",
    "--nproc-per-node 2 --master-addr 10.0.0.1 --master-port 1234 --node-rank 0 --nnodes 2 train.py",
    "--role trainer --log-dir logs -r 3 -t 0:1,1:2 --nproc-per-node 2 train.py",
    "--redirects=1 --tee=2 --nproc-per-node 2 train.py",
    "-m --nproc-per-node 2 pkg.train --x",
    "--module --nproc-per-node 2 pkg.train -m y",
    "--run-path --nproc-per-node 2 /abs/train.py",
    "--monitor-interval 0.5 --start-method fork --local-addr h --rdzv-conf a=1,b=2 --nproc-per-node 2 x.py",
    "--event-log-handler null --signals-to-handle SIGTERM --nproc-per-node 2 x.py",
    "--virtual-local-rank --nproc-per-node 2 x.py",
    "--shutdown-timeout 9 --nproc-per-node 2 x.py -- --nnodes 3",
]
WRONG = [
    "--nproc-pre-node 2 train.py",
    "--nproc-per-node",
    "--max-restarts many train.py",
    "--max-restarts=-1 train.py",
    "--start-method thread train.py",
    "--node-rank first train.py",
    "--nnodes 4:1 train.py",
    "--nnodes 0 train.py",
    "--nnodes 1:2:3 train.py",
    "--nnodes a train.py",
    "--redirects 7 train.py",
    "--tee 0-3 train.py",
    "--rdzv-b --nproc-per-node 2",
    "",
]

ORACLE = """
import json, sys
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.run import config_from_args, parse_args
answers = []
for line in json.load(sys.stdin):
    sys.stderr = open("/dev/null", "w")
    try:
        options = parse_args(line.split())
        config, _, _ = config_from_args(options)
        def streams(text):
            value = Std.from_str(text)
            if isinstance(value, Std):
                return [int(value)] * config.nproc_per_node
            return [int(value.get(rank, 0)) for rank in range(config.nproc_per_node)]
        answers.append({
            "nodes": [config.min_nodes, config.max_nodes], "nproc": config.nproc_per_node,
            "program": [options.training_script, *options.training_script_args],
            "is_module": options.module, "role": config.role, "max_restarts": config.max_restarts,
            "log_dir": options.log_dir, "rdzv_id": config.run_id, "virtual": config.virtual_local_rank,
            "port": options.master_port, "redirects": streams(options.redirects),
            "tee": streams(options.tee)})
    except (SystemExit, Exception):
        answers.append(None)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def torchs_answers() -> dict[str, Any]:
    """What torch's own parser makes of the lines; None where it refuses one."""
    lines = LINES + WRONG
    done = subprocess.run(
        [sys.executable, "-c", ORACLE], input=json.dumps(lines), capture_output=True, text=True, check=True
    )
    return dict(zip(lines, json.loads(done.stdout), strict=True))


def job(line: str, **environment: str) -> Job:
    words = ["--", "torchrun", *line.split()]
    return job_of(
        words,
        is_module=False,
        counts=Counts(),
        gpu="H100-SXM5-80GB",
        visible_gpus=None,
        environment=environment,
    )


@pytest.mark.parametrize("line", LINES)
def test_a_line_means_what_it_means_to_torch(line: str, torchs_answers: dict[str, Any]) -> None:
    expected = torchs_answers[line]
    found = job(line)
    launch = found.launch
    assert launch is not None
    assert list(found.program) == expected["program"]
    assert found.is_module == expected["is_module"]
    assert (launch.nnodes, launch.nproc_per_node) == (expected["nodes"][1], expected["nproc"])
    assert (launch.role, launch.max_restarts) == (expected["role"], expected["max_restarts"])
    assert (launch.log_dir, launch.virtual_local_rank) == (expected["log_dir"], expected["virtual"])
    for name in ("redirects", "tee"):
        assert list(getattr(launch, name) or (0,) * launch.nproc_per_node) == expected[name]
    if expected["rdzv_id"] != "none":
        assert launch.run_id == expected["rdzv_id"]
    if expected["port"] is not None:
        assert launch.master_port == expected["port"]
    assert found.visible_gpus == launch.nproc_per_node


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_torch_refuses_is_refused(line: str, torchs_answers: dict[str, Any]) -> None:
    assert torchs_answers[line] is None
    with pytest.raises(UsageError):
        job(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--no-python --nproc-per-node 2 train.sh", "--no-python is not supported"),
        ("--no_python train.sh", "--no-python is not supported"),
        ("--local-ranks-filter 0 train.py", "--local-ranks-filter is not supported"),
        ("--logs-specs mine train.py", "--logs-specs is not supported"),
        ("--nproc-per-node 9 --nnodes 2 train.py", "2 nodes of 9 ranks are 18 ranks.*at most 16"),
        ("--nproc-per-node seven train.py", "--nproc-per-node seven is no number of ranks"),
        ("--nproc-per-node 0 train.py", "--nproc-per-node 0 is no number of ranks"),
    ],
)
def test_what_maya_cannot_do_is_refused_with_a_reason(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        job(line)
    assert caught.value.hint


def test_gpu_and_auto_are_the_gpus_of_the_node() -> None:
    for word in ("gpu", "auto"):
        launch = job(f"--nproc-per-node {word} train.py").launch
        assert launch is not None
        assert launch.nproc_per_node == 8


def test_torchruns_variables_preset_its_options() -> None:
    launch = job("train.py", PET_NPROC_PER_NODE="3", PET_ROLE="actor").launch
    assert launch is not None
    assert (launch.nproc_per_node, launch.role) == (3, "actor")
    launch = job("--nproc-per-node 2 train.py", PET_NPROC_PER_NODE="3").launch
    assert launch is not None
    assert launch.nproc_per_node == 2


def words_to_job(words: str, *, is_module: bool = False, **counts: str) -> Job:
    return job_of(
        words.split(),
        is_module=is_module,
        counts=Counts(**counts),
        gpu="H100-SXM5-80GB",
        visible_gpus=None,
        environment={"PET_NPROC_PER_NODE": "5"},
    )


@pytest.mark.parametrize(
    "words",
    [
        "torchrun --nproc-per-node 2 train.py a",
        "-- torchrun --nproc-per-node 2 train.py a",
        "-- /usr/bin/torchrun --nproc-per-node 2 train.py a",
        "-- python -m torch.distributed.run --nproc-per-node 2 train.py a",
        "-- python3.11 -u -W ignore -m torch.distributed.run --nproc-per-node 2 train.py a",
        "-- python -m torch.distributed.launch --use_env --nproc_per_node=2 train.py a",
    ],
)
def test_the_ways_to_call_torchrun(words: str) -> None:
    found = words_to_job(words)
    assert found.launch is not None
    assert (found.launch.nproc_per_node, found.program) == (2, ("train.py", "a"))
    assert not found.launch.local_rank_argument


def test_the_old_launcher_passes_the_local_rank() -> None:
    found = words_to_job("torch.distributed.launch --nproc_per_node 2 train.py a", is_module=True)
    assert found.launch is not None
    assert found.launch.program(1, found.program) == ("train.py", "--local-rank=1", "a")
    assert not found.is_module


def test_without_counts_nothing_is_launched() -> None:
    for words in ("train.py --nproc-per-node 4", "-- python -u train.py --nproc-per-node 4"):
        found = words_to_job(words)
        assert found == Job(("train.py", "--nproc-per-node", "4"), False, None, 1)
    assert words_to_job("-- python -m pkg.train").is_module


def test_mayas_own_counts_need_no_torchrun() -> None:
    """Whatever the script's arguments look like; torchrun's variables preset torchrun only."""
    found = words_to_job("train.py --nproc-per-node 4 -- x", nproc_per_node="2", nnodes="3")
    assert found.program == ("train.py", "--nproc-per-node", "4", "--", "x")
    assert found.launch is not None
    assert (found.launch.nnodes, found.launch.nproc_per_node) == (3, 2)
    assert (found.launch.world_size, found.visible_gpus) == (6, 2)
    alone = words_to_job("train.py", nnodes="2").launch
    assert alone is not None
    assert alone.world_size == 2
    assert words_to_job("pkg.train -m z", is_module=True, nproc_per_node="2").is_module
    with pytest.raises(UsageError, match="given to `maya run` and to torchrun"):
        words_to_job("torchrun --nproc-per-node 2 train.py", nproc_per_node="2")


def test_more_ranks_than_gpus_of_a_node_is_said() -> None:
    assert not words_to_job("train.py", nproc_per_node="8").notes
    (note,) = words_to_job("train.py", nproc_per_node="12").notes
    assert "12 ranks on a node are more than the 8 GPUs" in note
    (note,) = job("--nnodes 1:2 --nproc-per-node 2 --rdzv-endpoint a:1 train.py").notes
    assert "all 2 take part" in note


def test_the_run_id_is_the_same_for_the_same_command() -> None:
    first, second, other = (job(line).launch for line in ("a.py x", "a.py x", "a.py y"))
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.run_id == second.run_id != other.run_id


@pytest.mark.parametrize("program", ["accelerate launch a.py", "deepspeed a.py", "srun a.py"])
def test_other_launchers_are_named(program: str) -> None:
    with pytest.raises(UsageError, match="not a launcher that Maya follows"):
        words_to_job(program)


def test_options_of_the_interpreter_that_change_the_script_are_refused() -> None:
    with pytest.raises(UsageError, match="python -c"):
        torchrun.without_python(["python", "-c", "print(1)"])
