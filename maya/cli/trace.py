"""`maya trace info|validate FILE|RUN`: look into execution traces and check them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maya.errors import EXIT_FAILURE, MayaError, UsageError

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
    from maya.traces import read_et, read_manifest, read_rank, summarise_et, summarise_rank

    if path.is_dir():
        manifest = read_manifest(path)
        ranks = [summarise_rank(read_rank(path, group.rank)) for group in manifest.rank_classes]
        if as_json:
            value: dict[str, Any] = {
                "manifest": {**asdict(manifest), "rank_classes": len(manifest.rank_classes)},
                "ranks": [asdict(rank) for rank in ranks],
            }
            print(json.dumps(value, indent=1))
            return 0
        print(f"run        {' '.join(manifest.command)}")
        print(f"gpu        {manifest.world_size} x {manifest.gpu}, torch {manifest.torch}")
        ended = f"{manifest.ended} (exit code {manifest.exit_code})"
        print(f"ended      {ended}{': ' if manifest.cause else ''}{manifest.cause}")
        for rank in ranks:
            print(f"rank {rank.rank}")
            print(f"  operations  {rank.operations:,}: {_counts(rank.kinds)}")
            print(f"  phases      {_counts(rank.phases)}")
            print(
                f"  iterations  {len(rank.iterations)}: {', '.join(map(str, rank.iterations[:8]))} operations"
            )
            print(
                f"  distinct    {rank.operators} operators, {rank.signatures} with their shapes, "
                f"{rank.modules} modules, {rank.streams} streams"
            )
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
        problems.append(_problem(error))
        return 1
    problems.extend(map(_problem, find_problems(trace)))
    warnings.extend(f"{path}: {warning}" for warning in find_warnings(trace))
    return 1


def _check_run(path: Path, problems: list[dict[str, Any]], warnings: list[str]) -> int:
    from maya.traces import read_manifest, read_rank, trace_path

    files = 0
    try:
        for group in read_manifest(path).rank_classes:
            files += _check_file(trace_path(path, group.rank), problems, warnings)
            read_rank(path, group.rank)
    except MayaError as error:
        problems.append(_problem(error))
    return files


def _problem(error: MayaError) -> dict[str, Any]:
    return {
        "message": error.message,
        "hint": error.hint,
        "offset": getattr(error, "offset", None),
        "node": getattr(error, "node", None),
    }
