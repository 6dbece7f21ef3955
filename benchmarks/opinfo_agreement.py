"""How many of PyTorch's OpInfos with a CUDA kernel give on the emulated GPU what they give on the CPU.

    python benchmarks/opinfo_agreement.py [--results FOLDER] [--only NAME ...] [--output FILE.md]

Every OpInfo of `torch.testing._internal.common_methods_invocations` that supports CUDA runs with all its
sample inputs (one main dtype and a second one) on the real CPU and on the device, with its backward,
in-place and out= forms and its error inputs. Compared: shapes, strides, dtypes, aliases, small known
values and exception types. One difference in one call makes the OpInfo disagree; so does a skip, a
crash or a time-out. Finished OpInfos are kept in FOLDER/opinfo.jsonl: a second start resumes there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "emulator" / "support"))

LIMIT_S = 120.0
"""CPU time of one OpInfo."""
CHUNK = 40
"""OpInfos of one forked process."""
KEPT_FINDINGS = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("/tmp/maya-opinfo"))
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    rows = run_all(options.results / "opinfo.jsonl", options.only)
    from opinfo_report import report

    text = report(rows)
    if options.output:
        options.output.write_text(text)
    print(text)


def run_all(path: Path, only: list[str] | None) -> list[dict[str, Any]]:
    """Check what is not in the file yet; all rows, in the order of the OpInfos."""
    import opinfo_checks

    chosen = [op for op in opinfo_checks.OPINFOS if only is None or op.formatted_name in only]
    names = [op.formatted_name for op in chosen]
    while True:
        rows = read_rows(path)
        left = [op for op in chosen if op.formatted_name not in rows]
        if not left:
            return [rows[name] for name in names]
        run_chunk(left[:CHUNK], path)
        print(f"{len(chosen) - len(left) + min(CHUNK, len(left))} of {len(chosen)}", file=sys.stderr)


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """OpInfo → its row."""
    if not path.exists():
        return {}
    return {row["name"]: row for row in map(json.loads, path.read_text().splitlines())}


def run_chunk(ops: list[Any], path: Path) -> None:
    """Check some OpInfos in a process of their own; one that dies or hangs is noted and ends it."""
    marker = path.with_suffix(".running")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            import torch

            # The OpInfos have asked for the GPU already. An emulated one survives a fork.
            torch.cuda._is_in_bad_fork = lambda: False
            for op in ops:
                marker.write_text(op.formatted_name)
                append(path, row_of(op))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    running, since = "", time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        now = marker.read_text() if marker.exists() else ""
        if now != running:
            running, since = now, time.monotonic()
        if time.monotonic() - since > 3 * LIMIT_S:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    if status != 0:
        name = marker.read_text()
        if name not in read_rows(path):
            why = f"the process ended with status {os.waitstatus_to_exitcode(status)}"
            append(path, {"name": name, "calls": 0, "seconds": 0.0, "findings": [["crash", "", why]]})


def row_of(op: Any) -> dict[str, Any]:
    """One OpInfo's agreement as a row."""
    from emulated_gpu import native
    from opinfo_checks import check_opinfo

    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    start = time.process_time()
    try:
        agreement = check_opinfo(op)
        calls = agreement.calls
        total = len(agreement.findings)
        findings = [[f.check, f.difference.kind, str(f)] for f in agreement.findings[:KEPT_FINDINGS]]
    except TimeoutError as error:
        calls, total, findings = 0, 1, [["time", "", str(error)]]
    except Exception as error:
        told = traceback.format_exception(error)[-3:]
        calls, total, findings = 0, 1, [["harness", "", " ".join(told)]]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return {
        "name": op.formatted_name,
        "calls": calls,
        "seconds": round(time.process_time() - start, 3),
        "total": total,
        "findings": findings,
        "host_failures": native.statistics()["host_failures"],
    }


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"took more than {LIMIT_S:.0f} s of CPU time")


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
