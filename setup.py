"""The part of the build that pyproject.toml cannot say: the native libraries are built with the package."""

from __future__ import annotations

import logging
import os
import runpy
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

WITHIN = Path("src", "longstride", "runtime", "native")
BUILDING = runpy.run_path(str(Path(__file__).parent / WITHIN / "building.py"))


class BuildNative(Command):
    """Builds the libraries beside their sources (editable installs) or into the build folder (wheels)."""

    description = "build the native libraries"
    user_options = []
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        if self.editable_mode and os.environ.get("LONGSTRIDE_BUILD_NATIVE") == "no":  # scripts/setup.py builds them
            return
        for name, reason in BUILDING["build"](self._folder()).items():
            self.announce(f"native: {name} was not built: {reason}", level=logging.WARNING)

    def get_source_files(self) -> list[str]:
        return sorted(str(path) for path in (WITHIN / "source").glob("*.[ch]"))

    def get_outputs(self) -> list[str]:
        return sorted(str(path) for path in self._folder().glob("*"))

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _folder(self) -> Path:
        return BUILDING["LIBRARIES"] if self.editable_mode else Path(self.build_lib, *WITHIN.parts[1:], "lib")


class Build(build):
    """Python's files, and the libraries."""

    sub_commands = [*build.sub_commands, ("build_native", None)]


class PlatformDistribution(Distribution):
    """For one platform, since there are libraries in it."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    """For any Python 3, since the libraries use nothing of Python's."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(
    distclass=PlatformDistribution,
    cmdclass={"build": Build, "build_native": BuildNative, "bdist_wheel": PlatformWheel},
)
