"""`maya trace info|validate FILE|RUN`: look into execution traces and check them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maya.errors import EXIT_FAILURE, MayaError, UsageError

if TYPE_CHECKING:
    from maya.traces import Mismatch, RankTrace

MOST_PROBLEMS = 20
"""Problems that `validate` prints of one file."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(dest="action", metavar="info|validate", required=True)
    for name, text in (
        ("info", "what a trace holds: nodes, kinds, iterations, collectives"),
        ("validate", "whether it is sound: schema, ids, dependencies, tables"),
    ):
        command = commands.add_parser(name, help=text, description=f"Show {text}.", allow_abbrev=False)
        command.add_argument(
            "path", metavar="FILE|RUN", type=Path, help="a Chakra file (.et, also gzipped) or a run folder"
        )
        command.add_argument("--json", action="store_true", help="print JSON")
        if name == "validate":
            command.add_argument(
                "--repair",
                metavar="OUT",
                type=Path,
                help="write a repaired copy: cut after the last whole node, drop dangling dependencies",
            )


def run(args: argparse.Namespace) -> int:
    """Run a sub-command.

    Raises:
        MayaError: a trace cannot be read (`info`).
    """
    path: Path = args.path
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    if args.action == "info":
        return _info(path, args.json)
    if args.repair is not None:
        return _repair(path, args.repair)
    return _validate(path, args.json)


def _info(path: Path, as_json: bool) -> int:
    from maya.traces import (
        first_difference,
        read_et,
        read_manifest,
        read_rank,
        summarise_et,
        summarise_rank,
    )

    if path.is_dir():
        manifest = read_manifest(path)
        traces = [read_rank(path, group.rank) for group in manifest.rank_classes]
        ranks = [summarise_rank(trace) for trace in traces]
        if as_json:
            value: dict[str, Any] = {
                "manifest": {**asdict(manifest), "rank_classes": len(manifest.rank_classes)},
                "ranks": [
                    {**asdict(rank), "ranks": group.ranks}
                    for rank, group in zip(ranks, manifest.rank_classes, strict=True)
                ],
            }
            print(json.dumps(value, indent=1))
            return 0
        print(f"run        {' '.join(manifest.command)}")
        print(f"gpu        {manifest.world_size} x {manifest.gpu}, torch {manifest.torch}")
        ended = f"{manifest.ended} (exit code {manifest.exit_code})"
        print(f"ended      {ended}{': ' if manifest.cause else ''}{manifest.cause}")
        for rank, trace, group in zip(ranks, traces, manifest.rank_classes, strict=True):
            others = f", stored for ranks {_ranks(group.ranks)}" if len(group.ranks) > 1 else ""
            print(f"rank {rank.rank}{others}")
            if trace is not traces[0]:
                print(f"  differs     from rank {ranks[0].rank} {first_difference(traces[0], trace)}")
            print(f"  operations  {rank.operations:,}: {_counts(rank.kinds)}")
            print(f"  phases      {_counts(rank.phases)}")
            print(
                f"  iterations  {len(rank.iterations)}: {', '.join(map(str, rank.iterations[:8]))} operations"
            )
            print(
                f"  distinct    {rank.operators} operators, {rank.signatures} with their shapes, "
                f"{rank.modules} modules, {rank.streams} streams"
            )
            for name, (count, size) in rank.communications.items():
                print(f"  {name:<11} {count:,}, {size:,} bytes")
            print(f"  allocations {rank.allocations:,}; values assumed {rank.assumptions}")
        return 0

    summary = summarise_et(read_et(path))
    if as_json:
        print(json.dumps(asdict(summary), indent=1))
        return 0
    print(
        f"schema        {summary.schema or '(not stated)'}{', recorded by Maya' if summary.by_maya else ''}"
    )
    print(
        f"nodes         {summary.nodes:,}: {_counts(summary.node_types)}; {summary.host_nodes:,} on the host"
    )
    print(f"dependencies  {summary.control_dependencies:,} control, {summary.data_dependencies:,} data")
    print(f"work          {summary.duration_us:,} us and {summary.num_ops:,} operations, summed")
    for name, (count, size) in summary.collectives.items():
        print(f"collective    {name}: {count:,}, comm_size {size:,} in all")
    for name, count in summary.top_names:
        print(f"name          {count:>8,}  {name[:90]}")
    return 0


def _ranks(ranks: tuple[int, ...]) -> str:
    from maya.traces import compress_ranks

    return ", ".join(
        f"{each[0]}-{each[1]}" if isinstance(each, list) else str(each) for each in compress_ranks(ranks)
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _validate(path: Path, as_json: bool) -> int:
    problems: list[dict[str, Any]] = []
    warnings: list[str] = []
    files = _check_run(path, problems, warnings) if path.is_dir() else _check_file(path, problems, warnings)
    if as_json:
        value = {"valid": not problems, "files": files, "problems": problems, "warnings": warnings}
        print(json.dumps(value, indent=1))
    else:
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
        for problem in problems[:MOST_PROBLEMS]:
            print(f"error: {problem['message']}", file=sys.stderr)
            if problem["hint"]:
                print(f"  {problem['hint']}", file=sys.stderr)
        if len(problems) > MOST_PROBLEMS:
            print(f"... and {len(problems) - MOST_PROBLEMS} more", file=sys.stderr)
        verdict = "not valid" if problems else "valid"
        print(f"{path}: {verdict}, {files} trace{'s' if files != 1 else ''} checked")
    return EXIT_FAILURE if problems else 0


def _repair(path: Path, out_path: Path) -> int:
    from maya.traces import repair_et

    if path.is_dir():
        raise UsageError("--repair takes a file, not a run folder", hint=f"e.g. {path / 'rank-0.et'}")
    done = repair_et(path, out_path)
    for step in done:
        print(f"repaired {step}", file=sys.stderr)
    print(f"{out_path}: valid{'' if done else ', nothing had to be repaired'}")
    return 0


def _check_file(path: Path, problems: list[dict[str, Any]], warnings: list[str]) -> int:
    from maya.traces import find_problems, find_warnings, read_et

    try:
        trace = read_et(path)
    except MayaError as error:
        _add(problems, error)
        return 1
    for problem in find_problems(trace):
        _add(problems, problem)
    warnings.extend(f"{path}: {warning}" for warning in find_warnings(trace))
    return 1


def _check_run(path: Path, problems: list[dict[str, Any]], warnings: list[str]) -> int:
    from maya.traces import ranks_of_class, read_manifest, read_rank, trace_path

    try:
        manifest = read_manifest(path)
    except MayaError as error:
        _add(problems, error)
        return 0
    traces: dict[int, RankTrace] = {}
    for group in manifest.rank_classes:
        _check_file(trace_path(path, group.rank), problems, warnings)
        try:
            traces |= ranks_of_class(read_rank(path, group.rank), group)
        except MayaError as error:
            _add(problems, error)
    if len(traces) == manifest.world_size:  # else it is no wonder if some have no peer
        _match(path, [traces[rank] for rank in sorted(traces)], problems, warnings)
    return len(manifest.rank_classes)


def _match(path: Path, traces: list[RankTrace], problems: list[dict[str, Any]], warnings: list[str]) -> None:
    """Match every collective and message with its peers'."""
    from maya.traces import find_mismatches

    for found in find_mismatches(traces):
        if found.excused:
            warnings.append(f"{path}: behind the last iteration, {found.message}")
        else:
            _add(problems, TraceMismatch(path, found))


class TraceMismatch(MayaError):
    """Ranks that do not agree, as an error of the run's folder."""

    def __init__(self, path: Path, found: Mismatch) -> None:
        super().__init__(f"{path}: {found.message}")
        self.node = found.node


def _add(problems: list[dict[str, Any]], error: MayaError) -> None:
    """List an error, once: several checks come upon the same damage."""
    if all(known["message"] != error.message for known in problems):
        problems.append(
            {
                "message": error.message,
                "hint": error.hint,
                "offset": getattr(error, "offset", None),
                "node": getattr(error, "node", None),
            }
        )
