"""Maps the rooms at the repository's root into the one import package `maya`.

Why the rooms are not nested folders, and why not top-level packages: docs/decisions/0002.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOMS = ("emulator", "traces", "kernel_models", "simulator")

packages = ["maya", *(f"maya.{name}" for name in find_packages("maya"))]
package_dir = {"maya": "maya"}
for room in ROOMS:
    package_dir[f"maya.{room}"] = room
    packages += [f"maya.{room}", *(f"maya.{room}.{name}" for name in find_packages(room))]


def _version() -> str:
    for line in (Path(__file__).parent / "maya" / "__init__.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("maya/__init__.py has no __version__")


setup(
    version=_version(),
    packages=packages,
    package_dir=package_dir,
    package_data={
        "maya": ["hardware/*.toml", "py.typed"],
        "maya.emulator": ["csrc/*", "csrc/**/*", "operators/*.txt"],
        "maya.traces": ["*.proto"],
        "maya.kernel_models": ["artifacts/*", "artifacts/**/*"],
    },
)
