"""`maya doctor`: what this machine has and lacks for `maya run`, and what to do about it."""

from __future__ import annotations

import argparse

from maya.errors import EXIT_FAILURE


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""
    parser.epilog = "Exits with 1 if something is missing; runs nothing but `g++ --version`."


def run(_options: argparse.Namespace) -> int:
    """Print one line for each finding; 1 if `maya run` cannot work here."""
    from maya.cli.health import Health, findings

    missing = 0
    for finding in findings():
        print(f"{finding.health.value:<8} {finding.name:<15} {finding.text}")
        if finding.fix:
            print(f"{'':<8} {'':<15} fix: {finding.fix}")
        missing += finding.health is Health.MISSING
    if missing:
        things = "1 thing is" if missing == 1 else f"{missing} things are"
        print(f"`maya run` cannot work yet: {things} missing")
        return EXIT_FAILURE
    print("`maya run` can work here")
    return 0
