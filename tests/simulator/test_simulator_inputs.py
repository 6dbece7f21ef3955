"""Bad input is refused with a message that names the rank, the column and the place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from maya.errors import MayaError
from maya.simulator import Settings, breakdown, iteration_times, simulate, with_work
from maya.traces.operations import Kind


@pytest.fixture
def good(script):
    s = script(3)
    s.kernel(10, 20, gap=5)
    s.host(5)
    return s.input()


def changed_kernels(rank, **columns):
    return dataclasses.replace(rank, kernels=dataclasses.replace(rank.kernels, **columns))


def changed_rows(rank, column, place, value):
    rows = rank.operations.rows.copy()
    rows[column][place] = value
    return dataclasses.replace(rank, operations=dataclasses.replace(rank.operations, rows=rows))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("work_ns", np.array([10, -1]), "rank 3: work_ns must not be negative; entry 1 is -1"),
        ("work_ns", np.array([10.0, np.nan]), "work_ns must be integer nanoseconds.*entry 1 is nan"),
        ("work_ns", np.array([10.0, 2.5]), "work_ns must be integer nanoseconds, not float64"),
        ("work_ns", np.array([10]), "operation_offsets must rise from 0 to the number of kernels, 1"),
        ("sm_share", np.array([0.5, np.nan]), "sm_share must lie in 0..1; entry 1 is nan"),
        ("hbm_share", np.array([0.5, 1.5]), "hbm_share must lie in 0..1; entry 1 is 1.5"),
        ("link_share", np.array([-0.5, 1.0]), "link_share must lie in 0..1; entry 0 is -0.5"),
        ("link_share", np.array([0.5]), "link_share has shape"),
        ("operation_offsets", np.array([0, 2]), "operation_offsets has shape"),
        ("operation_offsets", np.array([0, 3, 2]), "operation_offsets must rise"),
        ("operation_offsets", np.array([0.0, 2.0, 2.0]), "operation_offsets must be integers"),
        ("operation_offsets", np.array([0, 1, 2]), "HOST|aten.*cannot launch kernels"),
    ],
)
def test_bad_kernel_columns(good, column, values, message):
    with pytest.raises(ValueError, match=message):
        simulate([changed_kernels(good, **{column: values})])


@pytest.mark.parametrize(
    ("gaps", "message"),
    [
        (np.array([1, -7]), "host_gap_ns must not be negative; entry 1 is -7"),
        (np.array([1]), "host_gap_ns has shape"),
        (np.array([np.inf, 1.0]), "host_gap_ns must be integer.*entry 0 is inf"),
    ],
)
def test_bad_host_gaps(good, gaps, message):
    with pytest.raises(ValueError, match=message):
        simulate([dataclasses.replace(good, host_gap_ns=gaps)])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("id", 7, "operation 1 has id 7"),
        ("kind", 99, "operation 1 has the unknown kind 99"),
        ("kind", Kind.EVENT_RECORD, "names no event"),
        ("kind", Kind.WAIT, "has no communication row"),
    ],
)
def test_damaged_traces(good, column, value, message):
    with pytest.raises(MayaError, match=message):
        simulate([changed_rows(good, column, 1, value)])


def test_copy_without_direction_is_explained(script):
    s = script()
    s.copy(5, "sideways")
    with pytest.raises(MayaError, match="direction 'sideways'"):
        simulate([s.input()])


def test_collective_without_tables_is_explained(script):
    s = script(0, ((0, 1),))
    s.collective(0)
    with pytest.raises(MayaError, match="names communicator 0, which the tables do not have"):
        simulate([dataclasses.replace(s.input(), tables=None)])


def test_copies_without_tables_go_by_their_blocking(script):
    s = script()
    s.copy(50, "h2d", stream=0)
    s.copy(50, "d2h", stream=1, blocking=1)
    timeline = simulate([dataclasses.replace(s.input(), tables=None)], settings=Settings(launch_latency_ns=0))
    assert timeline.kernels["start_ns"].tolist() == [0, 0]


def test_ranks_must_be_given_and_differ(good):
    with pytest.raises(ValueError, match="at least one rank"):
        simulate([])
    with pytest.raises(ValueError, match="rank 3 is given twice"):
        simulate([good, good])


def test_unknown_rank_or_iteration_is_refused(good):
    timeline = simulate([good])
    with pytest.raises(ValueError, match="rank 0 was not simulated"):
        iteration_times(timeline, [1], rank=0)
    with pytest.raises(ValueError, match="must ascend within"):
        iteration_times(timeline, [2])
    with pytest.raises(ValueError, match="must ascend within"):
        iteration_times(timeline, [1, 0])
    with pytest.raises(ValueError, match="no end before its start"):
        breakdown(timeline, [5], [4])
    with pytest.raises(ValueError, match="no iteration ends"):
        iteration_times(timeline, []).steady_ns()


@pytest.mark.parametrize(
    "bad",
    [{"launch_latency_ns": -1}, {"launch_queue_depth": 0}, {"kernel_gap_ns": 1.5}, {"sync_return_ns": True}],
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Settings(**bad)


def test_other_durations_for_the_same_kernels(good):
    longer = dataclasses.replace(good, kernels=with_work(good.kernels, good.kernels.work_ns * 2))
    rows = simulate([longer]).kernels
    assert (rows["end_ns"] - rows["start_ns"]).tolist() == [20, 40]
