"""Random graphs whose generated code is compiled with AddressSanitizer and UndefinedBehaviorSanitizer, in a process of its own.

In: seeds. Out: what the process printed; it ends at the first finding. By hand: `python -m tests.backends.triton_cpp.sanitized COUNT SEED`.
Inputs lie in memory that ends with their last element, so that reads behind it are found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FLAGS = ("-O1", "-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
HERE = Path(__file__).resolve()


def libraries() -> list[str]:
    """The sanitizers' run-time libraries, [] where the compiler has none."""
    from dynamo_nb.backends.triton_cpp import cpp_build

    command = cpp_build.compiler()
    if command is None:
        return []
    asked = [subprocess.run([*command, f"-print-file-name={name}.so"], capture_output=True, text=True) for name in ("libasan", "libubsan")]
    found = [done.stdout.strip() for done in asked]
    return found if all(os.path.isabs(path) for path in found) else []


def run(count: int, first: int, cache: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "LD_PRELOAD": ":".join(libraries()), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "OMP_NUM_THREADS": "1",
        "DYNAMO_NB_CACHE_DIR": cache, "DYNAMO_NB_RAISE_INTERNAL": "1", "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.triton_cpp.sanitized", str(count), str(first), "inside"]
    return subprocess.run(command, cwd=HERE.parents[3], env=environment, capture_output=True, text=True)


def inside(count: int, first: int) -> None:
    from dynamo_nb.backends.triton_cpp import cpp_build
    from tests.backends.triton_cpp.random_graphs import check

    cpp_build.FLAGS = (*(f for f in cpp_build.FLAGS if f != "-O2"), *FLAGS)  # type: ignore[assignment]
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        why = check(seed, tight=True)
        assert not why, why
    print(f"{count} programs are clean", flush=True)


if __name__ == "__main__":
    if sys.argv[3:] == ["inside"]:
        inside(int(sys.argv[1]), int(sys.argv[2]))
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as cache:
            done = run(int(sys.argv[1]), int(sys.argv[2]), cache)
        print(done.stdout[-2000:], done.stderr[:6000], sep="\n")
        sys.exit(done.returncode)
