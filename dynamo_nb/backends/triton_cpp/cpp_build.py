"""From C++ text to a loaded library, through a compiler and an on-disk cache that processes share.

`load(source)` gives a `Library` (`address(name)` of an extern "C" function), or None, after one warning, where there is
no working compiler. Files are named by a hash of everything their code depends on and end in a checksum of themselves:
a damaged file is built again, never loaded. `$CXX` names the compiler; `$DYNAMO_NB_CACHE_DIR` the directory;
`$DYNAMO_NB_CACHE_MB` its size, beyond which the least recently used files go. `clear()` empties the table in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import torch

FORMAT = 1          # of the files and of what printers rely on; raise it where old files must not be used
FLAGS = (
    "-O2", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fno-strict-aliasing", "-fopenmp-simd", "-std=c++17",
    "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-semantic-interposition", "-fPIC", "-shared", "-w",
)
# A second vector loop for the rest would cost a third of compile time; partial redundancy elimination and threaded jumps make branches of selects;
# loops over the lanes of a vector must not become calls of memcpy.
GCC_FLAGS = ("--param=vect-epilogues-nomask=0", "-fno-tree-pre", "-fno-thread-jumps", "-fno-tree-loop-distribute-patterns", "-funswitch-loops", "-fsplit-loops")
LIBRARIES = ("-lm",)
LIMIT_MB = 512
log = logging.getLogger("dynamo_nb.triton_cpp")


class Library:
    """A loaded unit. seconds: what compiling took here, 0 if it came from the cache."""

    def __init__(self, handle: ctypes.CDLL, seconds: float) -> None:
        self._handle = handle
        self.seconds = seconds

    def address(self, name: str) -> int:
        address = ctypes.cast(getattr(self._handle, name), ctypes.c_void_p).value
        assert address is not None
        return address


_libraries: dict[str, Library] = {}
_warned: set[str] = set()
_lock = threading.RLock()


def clear() -> None:
    """Forgets loaded libraries, warnings given and what was found out about compiler and directory. Files stay."""
    with _lock:
        _libraries.clear()
        _warned.clear()
        for cached in (_compiler_version, _cpu, cache_directory):
            cached.cache_clear()


def load(source: str, build: bool = True) -> Library | None:
    """The compiled unit, built unless memory or disk has it; None, with one warning, where that fails. build=False: None if it would have to be built."""
    command = compiler()
    if command is None:
        return _unavailable("no C++ compiler: none of $CXX, g++, c++, clang++ is a program. Install one or set CXX; until then ATen runs these graphs")
    version = _compiler_version(command)
    if version is None:
        return _unavailable(f"the C++ compiler {shlex.join(command)} does not run. Repair it or set CXX; until then ATen runs these graphs")
    key = _key(source, command, version)
    with _lock:
        known = _libraries.get(key) or _from_disk(key)
    library = known or (_build(source, key, command, version) if build else None)
    if library is None:
        return None
    with _lock:
        return _libraries.setdefault(key, library)


def _unavailable(reason: str) -> Library | None:
    with _lock:
        if reason not in _warned:
            _warned.add(reason)
            log.warning("%s", reason)
    return None


# -- what a file depends on --------------------------------------------------------------------------------
def compiler() -> tuple[str, ...] | None:
    chosen = os.environ.get("CXX")
    for words in ([shlex.split(chosen)] if chosen else [["g++"], ["c++"], ["clang++"]]):
        if words and shutil.which(words[0]):
            return tuple(words)
    return None


@functools.cache
def _compiler_version(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.machine() + platform.processor()


def flags(version: str) -> tuple[str, ...]:
    return FLAGS + GCC_FLAGS if "Free Software Foundation" in version else FLAGS


def _key(source: str, command: tuple[str, ...], version: str) -> str:
    parts = (str(FORMAT), source, *command, version, *FLAGS, *GCC_FLAGS, *LIBRARIES, _cpu(), torch.__version__, sys.version, platform.machine())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


# -- files ------------------------------------------------------------------------------------------------
@functools.cache
def cache_directory() -> pathlib.Path:
    """The directory of the cache, made private to the user; one for this process alone where that one can't be written."""
    chosen = os.environ.get("DYNAMO_NB_CACHE_DIR")
    root = pathlib.Path(chosen) if chosen else pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "dynamo_nb"
    directory = root / "cpp"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        if not hasattr(os, "getuid") or directory.stat().st_uid == os.getuid():
            return directory
    except OSError:
        pass
    return pathlib.Path(tempfile.mkdtemp(prefix="dynamo_nb_cpp_"))


def _from_disk(key: str) -> Library | None:
    path = cache_directory() / f"{key}.so"
    try:
        data = path.read_bytes()
        if len(data) <= 32 or hashlib.sha256(data[:-32]).digest() != data[-32:]:
            return None
        os.utime(path)
        return Library(ctypes.CDLL(str(path)), 0.0)
    except OSError:
        return None


def _build(source: str, key: str, command: tuple[str, ...], version: str) -> Library | None:
    directory = cache_directory()
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(dir=directory) as work:
            text, made = pathlib.Path(work, "unit.cpp"), pathlib.Path(work, "unit.so")
            text.write_text(source)
            done = subprocess.run([*command, *flags(version), str(text), "-o", str(made), *LIBRARIES], capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                return _unavailable(f"{shlex.join(command)} failed on a generated unit ({done.stderr.strip()[-2000:]}). ATen runs this graph; please report it")
            data = made.read_bytes()
            made.write_bytes(data + hashlib.sha256(data).digest())
            library = Library(ctypes.CDLL(str(made)), time.perf_counter() - start)
            made.replace(directory / f"{key}.so")
    except (OSError, subprocess.SubprocessError) as error:
        return _unavailable(f"building a kernel failed: {error}. ATen runs this graph; check free space in {directory} and the compiler")
    _evict(directory)
    return library


def _evict(directory: pathlib.Path) -> None:
    """Removes the least recently used files beyond the limit; a loaded library lives on without its file."""
    limit = int(os.environ.get("DYNAMO_NB_CACHE_MB") or LIMIT_MB) * 2**20
    files = []
    for path in directory.glob("*.so"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
