"""Builds the extension module `dynamo_nb.native._native`; everything else stands in pyproject.toml.

torch's headers are located without importing torch, so that building costs a few seconds.
"""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TORCH_MINOR = "2.13"
CSRC = pathlib.Path("dynamo_nb/native/csrc")


def torch_folder() -> pathlib.Path:
    """Folder of the installed torch; SystemExit with one sentence where it is missing or another version."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"dynamo_nb needs torch {TORCH_MINOR} to build: pip install 'torch=={TORCH_MINOR}.0' first.")
    version = importlib.metadata.version("torch")
    if version.split("+")[0].rsplit(".", 1)[0] != TORCH_MINOR:
        raise SystemExit(
            f"dynamo_nb is made for torch {TORCH_MINOR}, but torch {version} is installed: pip install 'torch=={TORCH_MINOR}.0'."
        )
    return pathlib.Path(spec.submodule_search_locations[0])


class BuildExt(build_ext):
    """Compiles C and C++ sources with the flags each language needs; says it plainly when there is no compiler."""

    def build_extensions(self) -> None:
        if sys.version_info[:2] != (3, 11):
            raise SystemExit(f"dynamo_nb needs CPython 3.11, this is {sys.version.split()[0]}.")
        compilers = [self.compiler.compiler_so[0], self.compiler.compiler_cxx[0]]
        missing = [name for name in compilers if shutil.which(name) is None]
        if missing:
            raise SystemExit(
                f"dynamo_nb needs a C and C++ compiler to build, but '{missing[0]}' was not found: install g++ (apt-get install g++)."
            )
        torch = torch_folder()
        include = [str(torch / "include")]
        for name in ("compiler_so", "compiler_so_cxx"):  # debug information would double the build time
            self.compiler.set_executable(name, [flag for flag in getattr(self.compiler, name) if flag != "-g"])
        compile_one = self.compiler._compile

        def compile_by_language(obj, src, ext, cc_args, extra_postargs, pp_opts):  # type: ignore[no-untyped-def]
            flags = ["-std=c++20", "-Wno-missing-field-initializers", "-fopenmp"] if ext == ".cpp" else ["-std=gnu11"]
            compile_one(obj, src, ext, cc_args, [*extra_postargs, *flags], pp_opts)

        compile_files = self.compiler.compile

        def compile_in_parallel(files, *args, **kwargs):  # type: ignore[no-untyped-def]
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                return [obj for made in pool.map(lambda file: compile_files([file], *args, **kwargs), files) for obj in made]

        self.compiler._compile = compile_by_language
        self.compiler.compile = compile_in_parallel
        for extension in self.extensions:
            extension.include_dirs += include
            extension.library_dirs.append(str(torch / "lib"))
        super().build_extensions()


sources = sorted(str(path) for path in [*CSRC.glob("*.c"), *CSRC.glob("*.cpp")])
headers = sorted(str(path) for path in CSRC.glob("*.h*"))
extension = Extension(
    "dynamo_nb.native._native",
    sources,
    depends=[*headers, "setup.py"],
    libraries=["torch_python", "torch_cpu", "c10"],  # and no libgomp: OpenMP must be the one that torch has loaded
    extra_compile_args=["-O2", "-flto=1", "-fno-plt", "-fvisibility=hidden", "-Wall", "-Wno-unused-function"],
    extra_link_args=["-flto=1", "-O2"],
    language="c++",
)
setup(ext_modules=[extension], cmdclass={"build_ext": BuildExt})
