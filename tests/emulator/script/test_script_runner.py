"""A script followed by Maya behaves as under plain Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GLOBALS = """
import json, os, sys
names = {name: str(value).split(" object at")[0] for name, value in globals().items() if name[:2] == "__"}
print(json.dumps([names, sys.argv, sys.path[0], os.getcwd(), sys.modules["__main__"].__dict__ is globals(),
                  sys.stdin.read()], sort_keys=True))
"""


def plain(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, input=stdin, capture_output=True, text=True, timeout=60
    )


def test_a_script_sees_what_plain_python_shows_it(follow: Any, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "linked.py").write_text(GLOBALS)
    (tmp_path / "link.py").symlink_to("inner/linked.py")
    for name in ("inner/linked.py", "link.py", str(tmp_path / "inner" / "linked.py")):
        ours = follow(None, "a", "--b=1", name=name, stdin="typed")
        theirs = plain(tmp_path, name, "a", "--b=1", stdin="typed")
        assert ours.stdout == theirs.stdout
        assert ours.summary["ending"] == "finished"


def test_a_module_sees_what_plain_python_shows_it(follow: Any, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import sys; print(sys.argv[0], sys.path[0])")
    (tmp_path / "package" / "part.py").write_text(GLOBALS)
    (tmp_path / "package" / "__main__.py").write_text(GLOBALS)
    for name in ("package.part", "package"):
        ours = follow(None, "a", is_module=name)
        assert ours.stdout == plain(tmp_path, "-m", name, "a").stdout


def test_a_folder_runs_its_main(follow: Any, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(GLOBALS)
    assert follow(None, "x", name="app").stdout == plain(tmp_path, "app", "x").stdout


@pytest.mark.parametrize(
    "source",
    [
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('the reason')",
        "import sys; sys.exit((1, 2))",
        "raise SystemExit(True)",
        "def f(): raise ValueError('no')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
        "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])",
        "x = = 1",
        "import nowhere_to_be_found",
        "import atexit; atexit.register(print, 'bye'); print('hello')",
        "import atexit; atexit.register(print, 'bye'); raise RuntimeError",
        "import sys\n"
        "sys.excepthook = lambda *a: print('hooked', a[0], a[2].tb_frame.f_code.co_name)\n"
        "raise OSError(3)",
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('early')",
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T'); t.start(); t.join()",
        "import os; print('lost', end=''); os._exit(5)",
        "class A:\n    pass\nimport pickle; print(pickle.loads(pickle.dumps(A())).__class__.__module__)",
    ],
)
def test_output_and_exit_code_are_those_of_plain_python(follow: Any, tmp_path: Path, source: str) -> None:
    ours = follow(source)
    theirs = plain(tmp_path, "script.py")
    assert (ours.exit_code, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert ours.stderr == theirs.stderr
    assert ours.summary["exit_code"] == ours.exit_code


def test_the_cause_names_the_exception(follow: Any) -> None:
    summary = follow("raise RuntimeError('first line\\nsecond')").summary
    assert (summary["ending"], summary["cause"]) == ("raised", "RuntimeError: first line")


def test_interrupt(follow: Any) -> None:
    ours = follow("import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(5)")
    assert ours.exit_code == 130
    assert ours.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "follow.py" not in ours.stderr
    assert ours.summary["ending"] == "interrupted"


@pytest.mark.parametrize(("target", "is_module"), [("missing.py", None), (None, "no.such.module")])
def test_what_is_missing_is_a_usage_error(follow: Any, target: str | None, is_module: str | None) -> None:
    ours = follow(None, name=target or "", is_module=is_module)
    assert ours.exit_code == 2
    assert "missing.py" in ours.stderr or "no.such.module" in ours.stderr
    assert "Traceback" not in ours.stderr


def test_os_exit_writes_results_once(follow: Any) -> None:
    summary = follow("import os; os._exit(3)").summary
    assert (summary["how"], summary["ending"], summary["exit_code"]) == ("abrupt", "exited", 3)


def test_forked_children_write_nothing(follow: Any) -> None:
    source = """
import os, sys, atexit
from torch.optim import SGD
import torch
def step():
    p = torch.nn.Parameter(torch.ones(1)); p.grad = torch.ones(1)
    SGD([p], lr=0.1).step()
step()
for how in ("return", "exit", "_exit", "raise"):
    pid = os.fork()
    if pid == 0:
        for _ in range(9):
            step()
        if how == "return": break
        if how == "exit": sys.exit(4)
        if how == "_exit": os._exit(5)
        raise RuntimeError("child")
    print(how, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
    ours = follow(source)
    assert ours.stdout.splitlines() == ["return 0", "exit 4", "_exit 5", "raise 1"]
    assert ours.stderr.count("RuntimeError: child") == 1
    assert ours.summary["marks"] == ["maya::optimizer_begin", "maya::optimizer_end"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers(follow: Any, method: str) -> None:
    source = f"""
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor([i])
if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="{method}")
    print([int(batch.sum()) for batch in loader])
"""
    ours = follow(source)
    assert ours.stdout.strip() == "[1, 5, 9, 13]", ours.stderr
    assert ours.stderr == ""
    assert ours.summary["marks"] == ["maya::data_wait_begin", "maya::data_wait_end"] * 5
