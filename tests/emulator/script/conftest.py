"""Fixtures: the fake backend, and running a script as the rank's process would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def native() -> Any:
    spec = spec_from_file_location("fake_native", HERE / "fake_native.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeNative()


@dataclass
class Followed:
    exit_code: int
    stdout: str
    stderr: str
    summaries: list[dict[str, Any]]
    seconds: float

    @property
    def summary(self) -> dict[str, Any]:
        assert len(self.summaries) == 1, f"results were written {len(self.summaries)} times\n{self.stderr}"
        return self.summaries[0]


Follow = Callable[..., Followed]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """follow(source, *args, stdin="", settings={}, is_module=None) runs it in `tmp_path`."""

    def run(
        source: str | None,
        *arguments: str,
        stdin: str = "",
        name: str = "script.py",
        is_module: str | None = None,
        timeout: float = 60,
        **settings: Any,
    ) -> Followed:
        if source is not None:
            (tmp_path / name).write_text(source)
        summary = tmp_path / "summary.jsonl"
        summary.unlink(missing_ok=True)
        target = ["-m", is_module] if is_module else [name]
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(HERE / "follow.py"), json.dumps(settings), *target, *arguments],
            cwd=tmp_path,
            env={**os.environ, "FOLLOW_SUMMARY": str(summary)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        seconds = time.monotonic() - begin
        lines = summary.read_text().splitlines() if summary.exists() else []
        return Followed(
            done.returncode, done.stdout, done.stderr, [json.loads(line) for line in lines], seconds
        )

    return run
