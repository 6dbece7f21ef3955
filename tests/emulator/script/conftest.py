"""Fixtures: the fake backend, and running a script as the rank's process would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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

    @property
    def summary(self) -> dict[str, Any]:
        assert len(self.summaries) == 1, f"results were written {len(self.summaries)} times\n{self.stderr}"
        return self.summaries[0]


@pytest.fixture(scope="session")
def follow_server() -> Iterator[Callable[[dict[str, Any]], int]]:
    requests_read, requests_write = os.pipe()
    answers_read, answers_write = os.pipe()
    server = subprocess.Popen(
        [sys.executable, str(HERE / "follow.py"), str(requests_read), str(answers_write)],
        pass_fds=(requests_read, answers_write),
    )
    os.close(requests_read)
    os.close(answers_write)
    with open(requests_write, "w") as requests, open(answers_read) as answers:

        def ask(request: dict[str, Any]) -> int:
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            return int(answers.readline())

        yield ask
    server.wait(timeout=30)


@pytest.fixture
def follow(tmp_path: Path, follow_server: Callable[[dict[str, Any]], int]) -> Callable[..., Followed]:
    """follow(source, *args, stdin="", is_module=None, **settings) runs it in `tmp_path`."""

    def run(
        source: str | None,
        *arguments: str,
        stdin: str = "",
        name: str = "script.py",
        is_module: str | None = None,
        **settings: Any,
    ) -> Followed:
        if source is not None:
            (tmp_path / name).write_text(source)
        files = {kind: str(tmp_path / f".{kind}") for kind in ("stdin", "stdout", "stderr", "summary")}
        Path(files["stdin"]).write_text(stdin)
        summary = Path(files["summary"])
        summary.unlink(missing_ok=True)
        target = ["-m", is_module] if is_module else [name]
        exit_code = follow_server(
            {"words": [*target, *arguments], "settings": settings, "folder": str(tmp_path), **files}
        )
        lines = summary.read_text().splitlines() if summary.exists() else []
        return Followed(
            exit_code,
            Path(files["stdout"]).read_text(),
            Path(files["stderr"]).read_text(),
            [json.loads(line) for line in lines],
        )

    return run
