"""The launcher's parts, each by itself: waits, notices, reports, streams, and what is made of them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from maya.errors import MayaError
from maya.pipeline.agent_store import AgentStore, HangWatch, describe_wait, open_listener
from maya.pipeline.job_end import JobEnd, Unfinished, end_of_job
from maya.pipeline.launch import Launch
from maya.pipeline.launch_report import LaunchReport, RankEnd, read_report, write_report
from maya.pipeline.rank_child import RankChild
from maya.pipeline.rank_link import GO, EndNotice, RankSide, open_line
from maya.pipeline.rank_streams import RankStreams
from maya.pipeline.supervise import ChildEnd
from maya.traces import Ended

ENDED_WELL = ChildEnd(exit_code=0, signal_number=None)
WAIT = json.dumps({"operation": "all_reduce", "communicator": "1", "sequence": 7, "ranks": [0, 1]})


def outcome(run_dir: Path, rank: int, ended: str, code: int = 0, **more: object) -> None:
    text = json.dumps({"ended": ended, "exit_code": code, "iterations": 2, **more})
    (run_dir / f"outcome-{rank}.json").write_text(text)


def report(run_dir: Path, codes: dict[int, tuple[int | None, int | None]], **more: object) -> None:
    ends = tuple(RankEnd(rank, code, number, told=True) for rank, (code, number) in codes.items())
    write_report(run_dir, LaunchReport(ends, **more))  # type: ignore[arg-type]


def test_a_hang_is_everybody_waiting_for_the_same_for_long() -> None:
    watch = HangWatch(patience_s=10)
    waits = {0: "a", 1: "b"}
    assert not watch.hangs(0, [0, 1], waits)
    assert not watch.hangs(9, [0, 1], waits)
    assert watch.hangs(10, [0, 1], waits)


@pytest.mark.parametrize("disturbed", [{0: "a"}, {}, {0: "a", 1: "c"}])
def test_whoever_gets_on_is_no_hang(disturbed: dict[int, str]) -> None:
    watch = HangWatch(patience_s=10)
    watch.hangs(0, [0, 1], {0: "a", 1: "b"})
    assert not watch.hangs(9, [0, 1], disturbed)
    assert not watch.hangs(11, [0, 1], {0: "a", 1: "b"})


def test_a_wait_is_described() -> None:
    assert describe_wait(WAIT) == "all_reduce number 7 of communicator 1 with ranks 0, 1"
    assert describe_wait("garbage") == "garbage"
    assert describe_wait("[]") == "[]"


def test_the_store_tells_who_waits() -> None:
    torch = pytest.importorskip("torch")
    listener = open_listener(None)
    port = listener.getsockname()[1]
    store = AgentStore(listener)
    client = torch.distributed.TCPStore("127.0.0.1", port, is_master=False)
    assert store.waits([0, 1]) == {}
    client.set("maya/waiting/1", WAIT)
    assert store.waits([0, 1]) == {1: WAIT}
    client.set("maya/waiting/1", "")
    assert store.waits([0, 1]) == {}
    store.tell_ended(1, "exception")
    assert client.get("maya/ended/1") == b"exception"


def test_a_port_in_use_is_replaced() -> None:
    first = open_listener(None)
    port = first.getsockname()[1]
    second = open_listener(port)
    assert second.getsockname()[1] != port
    first.close()
    second.close()


def forked(ended: Ended | None, exit_code: int, *, stay: bool = False, number: int = 0) -> RankChild:
    """A process that says how it ended, as a rank does, or is ended by a signal without a word."""
    ours, theirs = open_line()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pid = os.fork()
    if pid == 0:
        ours.close()
        line = RankSide(theirs, os.getppid())
        line.listen(lambda _: None)
        if ended is not None:
            line.tell(EndNotice(ended, exit_code), stay=stay)
        if number:
            os.kill(os.getpid(), number)
        os._exit(exit_code)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return RankChild(3, pid, ours)


def look_until(child: RankChild, what: str, seconds: float = 30) -> list[bool]:
    news = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        news.append(child.look(time.monotonic()))
        if getattr(child, what) == (what != "runs"):
            return news
        time.sleep(0.01)
    raise AssertionError(f"the rank has not become {what}")


def test_a_stopped_rank_stays_until_it_is_let_go() -> None:
    child = forked(Ended.STOPPED, 0, stay=True)
    look_until(child, "has_told")
    assert child.lingers
    assert not child.failed
    child.let_go(time.monotonic(), GO)
    look_until(child, "runs")
    assert (child.end.exit_code, child.exit_code, child.was_ended_by_us) == (0, 0, False)


def test_a_failure_is_known_before_the_process_has_ended() -> None:
    child = forked(Ended.EXCEPTION, 1)
    news = look_until(child, "failed")
    assert news[-1]
    look_until(child, "runs")
    assert child.exit_code == 1
    assert child.ending == "exception"


def test_a_rank_ended_by_a_signal_has_failed() -> None:
    child = forked(None, 0, number=signal.SIGKILL)
    look_until(child, "runs")
    assert child.failed
    assert child.exit_code == 128 + signal.SIGKILL
    assert child.ending == "killed"


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    ends = (RankEnd(0, 0, None, True), RankEnd(1, None, 9, False))
    written = LaunchReport(ends, first_failure=1, hang={0: "x"}, stopped_late=(0,))
    assert read_report(tmp_path) is None
    write_report(tmp_path, written)
    assert read_report(tmp_path) == written


def test_all_ranks_ended_well(tmp_path: Path) -> None:
    for rank in range(2):
        outcome(tmp_path, rank, "stopped")
    report(tmp_path, {0: (0, None), 1: (0, None)})
    job = end_of_job(tmp_path, ENDED_WELL, ranks=2, timeout_s=None)
    assert isinstance(job, JobEnd)
    assert (job.exit_code, job.ended, job.iterations, job.failed_rank) == (0, Ended.STOPPED, 2, None)


def test_the_first_failure_stands_for_the_job(tmp_path: Path) -> None:
    outcome(tmp_path, 0, "exception", 1, cause={"type": "RuntimeError", "message": "lost my peer"})
    outcome(tmp_path, 1, "exit", 3)
    report(tmp_path, {0: (1, None), 1: (3, None)}, first_failure=1)
    job = end_of_job(tmp_path, ChildEnd(3, None), ranks=2, timeout_s=None)
    assert isinstance(job, JobEnd)
    assert (job.exit_code, job.ended, job.failed_rank) == (3, Ended.EXIT, 1)


def test_a_hang_names_every_wait(tmp_path: Path) -> None:
    for rank in range(2):
        outcome(tmp_path, rank, "interrupted", 143)
    report(tmp_path, {0: (143, None), 1: (143, None)}, hang={0: describe_wait(WAIT), 1: "all_gather"})
    job = end_of_job(tmp_path, ENDED_WELL, ranks=2, timeout_s=None)
    assert isinstance(job, JobEnd)
    assert (job.ended, job.exit_code) == (Ended.HANG, 1)
    assert "rank 0 waits in all_reduce number 7" in job.hang
    assert "rank 1 waits in all_gather" in job.hang


def test_a_killed_rank_is_named_with_its_signal(tmp_path: Path) -> None:
    outcome(tmp_path, 0, "interrupted", 143)
    report(tmp_path, {0: (143, None), 1: (None, 9)}, first_failure=1)
    job = end_of_job(tmp_path, ChildEnd(137, None), ranks=2, timeout_s=None)
    assert isinstance(job, Unfinished)
    assert job.cause == "the process of rank 1 was ended by SIGKILL"
    assert job.exit_code == 137


def test_a_timeout_names_every_ranks_place(tmp_path: Path) -> None:
    frame = 'Current thread 0x1 (most recent call first):\n  File "/home/u/train.py", line {} in {}\n'
    stacks = {0: frame.format(7, "wait"), 1: frame.format(9, "work")}
    end = ChildEnd(None, 9, timed_out=True, where=stacks[0], stacks=stacks)
    job = end_of_job(tmp_path, end, ranks=2, timeout_s=30)
    assert isinstance(job, Unfinished)
    assert "timed out after 30 s" in job.cause
    assert "train.py:7 in wait" in job.cause
    assert "rank 1" in job.cause
    assert "train.py:9 in work" in job.cause
    assert "rank 1:" in job.stacks


def test_mayas_own_failure_in_a_rank_is_raised(tmp_path: Path) -> None:
    outcome(tmp_path, 0, "stopped")
    outcome(tmp_path, 1, "internal_error", 1, cause={"type": "MayaError", "message": "no space", "hint": "h"})
    report(tmp_path, {0: (0, None), 1: (1, None)}, first_failure=1)
    with pytest.raises(MayaError, match="no space"):
        end_of_job(tmp_path, ENDED_WELL, ranks=2, timeout_s=None)


def test_a_launcher_that_died_is_told(tmp_path: Path) -> None:
    job = end_of_job(tmp_path, ChildEnd(None, 11), ranks=2, timeout_s=None)
    assert isinstance(job, Unfinished)
    assert "ended by SIGSEGV" in job.cause


def test_teed_lines_are_shown_with_their_rank(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    launch = Launch(2, log_dir=str(tmp_path), run_id="job", redirects=(3, 0), tee=(0, 1))
    streams = RankStreams(launch, tmp_path)
    assert set(streams.files(0)) == {1, 2}
    (teed,) = streams.files(1).values()
    teed.write_text("one\nhalf")
    streams.pump()
    assert capfd.readouterr().out == "[default1]:one\n"
    streams.close()
    assert capfd.readouterr().out == "[default1]:half\n"
    next(iter(streams.files(0).values())).write_text("silent\n")
    streams.close()
    assert capfd.readouterr().out == ""


def test_ranks_of_nodes() -> None:
    launch = Launch(nproc_per_node=4, nnodes=2)
    sixth = launch.environment(5, 29500, "error.json", {})
    wanted = {"RANK": "5", "LOCAL_RANK": "1", "GROUP_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    assert wanted.items() <= sixth.items()
    assert Launch.from_json(json.loads(json.dumps(launch.to_json()))) == launch
    with pytest.raises(ValueError, match="no job"):
        Launch(0)


def test_threads_of_each_rank_are_limited_as_by_torchrun() -> None:
    assert Launch(2).launcher_environment({}) == {"OMP_NUM_THREADS": "1"}
    assert Launch(2).launcher_environment({"OMP_NUM_THREADS": "4"}) == {}
    assert Launch(1).launcher_environment({}) == {}
