"""The C++ compiler: finding one, and the command that builds the backend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from maya.errors import MayaError

CANDIDATES = ("g++", "c++", "clang++")
SHOWN_LINES = 20
"""Lines of the compiler's own message that an error shows."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its path and the first line of `--version`."""

    path: str
    version: str


def find_compiler() -> Compiler | None:
    """The compiler `$CXX` names, else the first of g++, c++, clang++ on the PATH; None without one."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else CANDIDATES:
        path = shutil.which(name)
        if path is None:
            continue
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout:
            return Compiler(path, answer.stdout.splitlines()[0])
    return None


def compile_library(compiler: Compiler, source: Path, target: Path, module_name: str) -> None:
    """Compile one C++ file against the torch in this environment into a Python extension module.

    Raises:
        MayaError: headers are missing or the compiler refused; with the end of its message.
    """
    import torch

    # Not torch.utils.cpp_extension: importing it looks for a CUDA toolkit and warns without one.
    torch_folder = Path(torch.__file__).parent
    headers = torch_folder / "include"
    python_headers = sysconfig.get_paths()["include"]
    if not (Path(python_headers) / "Python.h").exists():
        raise MayaError(
            f"no Python headers in {python_headers}",
            hint="Install them (Debian, Ubuntu: apt-get install python3-dev) or use a Python that has them.",
        )
    command = [
        compiler.path,
        *("-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"),
        f"-DTORCH_EXTENSION_NAME={module_name}",
        *(f"-isystem{path}" for path in (headers, headers / "torch/csrc/api/include", python_headers)),
        str(source),
        *("-o", str(target)),
        f"-L{torch_folder / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines()
        shown = "\n".join(lines[:SHOWN_LINES])
        raise MayaError(
            f"compiling the emulated device with {compiler.version} failed:\n{shown}",
            hint="A compiler with C++20 is needed (g++ 11 or newer); set CXX to choose another one.",
        )
