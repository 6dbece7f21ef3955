"""The rank's process: its end is told as it was, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from maya.errors import MayaError
from maya.pipeline.supervise import ChildEnd, supervise
from maya.pipeline.where import innermost_user_frame


def start(tmp_path: Path, source: str, **options: object) -> ChildEnd:
    (tmp_path / "rank-0.et.rows.partial").touch()  # the script has begun
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(source))
    spec = tmp_path / "spec.json"
    spec.write_text("{}")
    program = (sys.executable, str(script))
    return supervise(spec, run_dir=tmp_path, program=program, **options)  # type: ignore[arg-type]


def wait_until_gone(pid: int, seconds: float = 5) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_code_is_passed_on(tmp_path: Path, code: int) -> None:
    end = start(tmp_path, f"raise SystemExit({code})")
    assert (end.exit_code, end.signal_number) == (code, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_is_named(tmp_path: Path, number: int) -> None:
    end = start(tmp_path, f"import os; os.kill(os.getpid(), {int(number)})")
    assert (end.exit_code, end.signal_number) == (None, number)


def test_the_child_inherits_no_blocked_signals(tmp_path: Path) -> None:
    source = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    assert start(tmp_path, source).exit_code == 0


def test_our_own_signal_mask_is_put_back(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    start(tmp_path, "pass")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_timeout_ends_the_child_and_what_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    end = start(
        tmp_path,
        """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open(sys.argv[0] + ".pid", "w").write(str(child.pid))
        time.sleep(60)
        """,
        timeout_s=1.0,
    )
    assert end.timed_out
    assert time.monotonic() - began < 10
    assert wait_until_gone(int((tmp_path / "child.py.pid").read_text()))


def test_timeout_says_where_the_script_was(tmp_path: Path) -> None:
    end = start(
        tmp_path,
        """
        import faulthandler, time
        from pathlib import Path
        from maya.pipeline.rank_process import WHERE_FILE, WHERE_SIGNAL
        where = open(Path(__file__).parent / WHERE_FILE.format(rank=0), "w")
        faulthandler.register(WHERE_SIGNAL, file=where, all_threads=True)
        def stuck():
            time.sleep(60)
        stuck()
        """,
        timeout_s=1.5,
    )
    assert innermost_user_frame(end.where).endswith("child.py:8 in stuck")


def test_leftover_processes_are_ended(tmp_path: Path) -> None:
    """Also one whose own parent is gone already."""
    end = start(
        tmp_path,
        """
        import os, sys, time
        if os.fork() == 0:
            if os.fork() == 0:
                open(sys.argv[0] + ".pid", "w").write(str(os.getpid()))
                time.sleep(60)
            os._exit(0)
        os.wait()
        time.sleep(0.3)
        """,
    )
    assert end.exit_code == 0
    assert end.leftovers == 1
    assert wait_until_gone(int((tmp_path / "child.py.pid").read_text()))


def test_work_meanwhile_is_done_and_waiting_is_told(tmp_path: Path) -> None:
    done: list[int] = []
    waits: list[float] = []
    start(
        tmp_path,
        "import time; time.sleep(1.2)",
        meanwhile=[lambda: done.append(1), lambda: done.append(2)],
        on_wait=waits.append,
    )
    assert done == [1, 2]
    assert waits == sorted(waits)
    assert len(waits) >= 2


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MayaError, match="cannot start"):
        supervise(tmp_path / "spec.json", run_dir=tmp_path, program=("/nonexistent/python",))


SUPERVISOR = """
import sys
from pathlib import Path
from maya.pipeline.supervise import supervise
end = supervise(Path("spec"), run_dir=Path(sys.argv[1]), program=(sys.executable, "-c", sys.argv[2]))
print(end.exit_code, end.signal_number, end.interrupted_by, flush=True)
"""


def supervisor(tmp_path: Path, child: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path), textwrap.dedent(child)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


NOTE_PID = "import os, time; print(os.getpid(), flush=True); "


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_sent_to_us_reaches_the_child(tmp_path: Path, number: int) -> None:
    parent = supervisor(
        tmp_path,
        f"""
        import signal
        signal.signal({int(number)}, lambda *_: exit(7))
        {NOTE_PID}time.sleep(60)
        """,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.2)
    os.kill(parent.pid, number)
    assert parent.stdout.read().split() == ["7", "None", str(int(number))]
    assert wait_until_gone(pid)
    parent.wait()


def test_a_second_interrupt_kills_a_child_that_will_not_end(tmp_path: Path) -> None:
    parent = supervisor(
        tmp_path,
        f"""
        import signal
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        {NOTE_PID}time.sleep(60)
        """,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    for _ in range(2):
        time.sleep(0.3)
        os.kill(parent.pid, signal.SIGINT)
    assert parent.stdout.read().split() == ["None", "9", "2"]
    assert wait_until_gone(pid)
    parent.wait()


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    parent = supervisor(
        tmp_path,
        f"""
        import os
        from maya.pipeline.rank_process import die_with
        die_with(os.getppid())
        {NOTE_PID}time.sleep(60)
        """,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    assert wait_until_gone(pid)


def test_control_c_at_a_terminal_reaches_the_child_once(tmp_path: Path) -> None:
    """The terminal sends it to both of us; passing it on would interrupt the script's clean-up."""
    import pty

    child = textwrap.dedent(
        """
        import signal, sys, time
        count = 0
        def counted(*_):
            global count
            count += 1
        signal.signal(signal.SIGINT, counted)
        print("ready", flush=True)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            time.sleep(0.05)
        sys.exit(count)
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", SUPERVISOR, str(tmp_path), child])
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while True:
        try:
            more = os.read(terminal, 1024)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        shown += more
    os.waitpid(pid, 0)
    os.close(terminal)
    assert shown.decode().replace("^C", "").split()[-3:] == ["1", "None", "2"]


def test_the_timeout_waits_for_the_script_to_begin(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text("{}")
    program = (sys.executable, "-c", "import time; time.sleep(1.2)")
    end = supervise(spec, run_dir=tmp_path, program=program, timeout_s=0.3)
    assert not end.timed_out


STACKS = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "{place}/other.py", line 1 in worker

Current thread 0x00007f02 (most recent call first):
  File "/x/site-packages/torch/nn/modules/linear.py", line 114 in forward
  File "{place}/train.py", line 42 in forward
  File "{place}/train.py", line 99 in <module>
"""


def test_where_names_the_scripts_own_innermost_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert innermost_user_frame(STACKS.format(place=tmp_path)) == "at train.py:42 in forward"
    only_library = '  File "/x/site-packages/torch/a.py", line 3 in f\n'
    assert innermost_user_frame(only_library).startswith("outside the script, at /x/")
    assert innermost_user_frame("") == ""
