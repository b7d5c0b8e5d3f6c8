"""The cache of compiled units, compilers that are missing or broken, index expressions, and units under the sanitizers."""

from __future__ import annotations

import ctypes
import logging
import os
import pathlib
import subprocess
import sys

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from dynamo_nb.backends.triton_cpp import cpp_build
from dynamo_nb.backends.triton_cpp.cpp_exprs import IndexPrinter
from dynamo_nb.backends.triton_cpp.cpp_math import library as definitions
from dynamo_nb.backends.triton_cpp.cpp_printer import print_unit
from dynamo_nb.backends.triton_cpp.ir import DType, Kernel, Load, Phase, Store

from .cpp_helpers import buffer, buffers, symbol
from .random_kernels import Random, inputs
from .test_cpp_kernels import layer_norm, reduction, softmax
from .test_cpp_ops import eager, operands, pointwise

SOURCE = 'extern "C" int answer() { return %d; }\n'


@pytest.fixture
def directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DYNAMO_NB_CACHE_DIR", str(tmp_path))
    cpp_build.clear()
    yield tmp_path / "cpp"
    cpp_build.clear()


def answer(library: cpp_build.Library | None) -> int:
    assert library is not None
    return ctypes.CFUNCTYPE(ctypes.c_int)(library.address("answer"))()


def test_built_once_and_found_again(directory: pathlib.Path) -> None:
    first = cpp_build.load(SOURCE % 41)
    assert answer(first) == 41 and first is not None and first.seconds > 0
    assert cpp_build.load(SOURCE % 41) is first
    cpp_build.clear()
    again = cpp_build.load(SOURCE % 41)
    assert answer(again) == 41 and again is not None and again.seconds == 0
    assert [p.suffix for p in directory.iterdir()] == [".so"]
    assert directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damaged_files_are_built_again(directory: pathlib.Path, damage: str) -> None:
    assert answer(cpp_build.load(SOURCE % 42)) == 42
    (path,) = directory.glob("*.so")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.unlink()           # a mapped file must not be written to
    path.write_bytes(bytes({"truncate": data[: len(data) // 3], "flip": data, "empty": b""}[damage]))
    cpp_build.clear()
    library = cpp_build.load(SOURCE % 42)
    assert answer(library) == 42 and library is not None and library.seconds > 0


def test_least_recently_used_files_go(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cpp_build.load(SOURCE % 1)
    (first,) = directory.glob("*.so")
    os.utime(first, (1, 1))
    monkeypatch.setenv("DYNAMO_NB_CACHE_MB", "0")
    cpp_build.load(SOURCE % 2)
    assert not first.exists()
    assert answer(kept) == 1


@pytest.mark.parametrize("compiler", ["no-such-compiler-anywhere", "false"])
def test_without_a_working_compiler(directory: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, compiler: str) -> None:
    monkeypatch.setenv("CXX", compiler)
    with caplog.at_level(logging.WARNING, "dynamo_nb.triton_cpp"):
        logging.getLogger("dynamo_nb.triton_cpp").addHandler(caplog.handler)
        try:
            assert cpp_build.load(SOURCE % 3) is None
            assert cpp_build.load(SOURCE % 4) is None
        finally:
            logging.getLogger("dynamo_nb.triton_cpp").removeHandler(caplog.handler)
    assert len({r.getMessage() for r in caplog.records}) == 1
    assert "CXX" in caplog.records[0].getMessage()


def test_two_processes_share_files(directory: pathlib.Path) -> None:
    assert answer(cpp_build.load(SOURCE % 5)) == 5
    code = f"from dynamo_nb.backends.triton_cpp import cpp_build\nprint(cpp_build.load({SOURCE % 5!r}).seconds)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()[-1] == "0.0"


def test_index_expressions(directory: pathlib.Path) -> None:
    a, b = symbol("a"), sympy.Symbol("b", integer=True)
    cases = [
        FloorDiv(b, 3), b % 5, ModularIndexing(a, 4, 3), sympy.floor(b / 2), sympy.ceiling(b / 2), a * (a + 1) / 2, a**2 / 2 + a / 2, sympy.Max(a, b, 3),
        sympy.Min(a, b), a**9, 2**a, -b, sympy.Abs(b), FloorDiv(a * 7 + 3, 2), sympy.Integer(-(2**63)),
    ]
    printer = IndexPrinter({a: "a", b: "b"})
    rows = "".join(f"out[{k}] = {printer(e)};\n" for k, e in enumerate(cases))
    library = cpp_build.load(definitions(rows) + f'extern "C" void f(i64 a, i64 b, i64 *out) {{\n{rows}}}\n')
    assert library is not None
    for x, y in ((0, 0), (1, -1), (7, -13), (13, 8), (6, 6)):
        out = torch.zeros(len(cases), dtype=torch.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(library.address("f"))(x, y, out.data_ptr())
        assert out.tolist() == [int(e.subs({a: x, b: y})) for e in cases]


# -- sanitizers ----------------------------------------------------------------------------------------------------
def operations(dtype: DType, names: str) -> list[tuple[Kernel, list[torch.Tensor]]]:
    out = []
    for name in names.split():
        args = operands(name, dtype)
        expected = eager(name, args)
        if expected is not None:
            result = DType.of(expected.dtype)
            assert result is not None
            out.append((pointwise(f"k_{dtype.value}_{name}", [dtype] * len(args), name, result), args))
    return out


def driver(kernels: list[tuple[Kernel, dict[str, torch.Tensor], tuple[int, ...]]], folder: pathlib.Path) -> str:
    """A main() that gives every kernel memory of exactly its size, filled from files, and calls it in two runs."""
    unit = print_unit([k for k, _, _ in kernels])
    lines = ["#include <cstdio>", "#include <cstdlib>", unit.source, "static void *get(const char *path, long n) {"]
    lines += ["void *m = malloc(n); FILE *f = fopen(path, \"rb\"); if (f && n) if (!fread(m, 1, n, f)) abort(); if (f) fclose(f); return m; }", "int main() {"]
    for kernel, tensors, sizes in kernels:
        count = int(unit.kernels[kernel.name].count.subs(dict(zip(kernel.sizes, sizes, strict=True))))
        texts = []
        for name in (*kernel.reads, *kernel.writes):
            path = folder / f"{kernel.name}_{name}"
            tensor = tensors[name].contiguous()
            path.write_bytes(bytes(tensor.view(torch.uint8).flatten().tolist()) if tensor.numel() else b"")
            texts.append(f'get("{path}", {tensor.nbytes})')
        lines.append(f"{{ void *p[] = {{{', '.join(texts)}}}; i64 s[] = {{{', '.join(map(str, (*sizes, 0)))}}};")
        lines.append(f"{kernel.name}(p, s, {count // 3}, {count}); {kernel.name}(p, s, 0, {count // 3});")
        lines.append(f"for (int i = 0; i < {len(texts)}; i++) free(p[i]); }}")
    return "\n".join([*lines, "}", ""])


def test_clean_under_sanitizers(tmp_path: pathlib.Path) -> None:
    kernels: list[tuple[Kernel, dict[str, torch.Tensor], tuple[int, ...]]] = []
    for dtype, names in (
        (DType.i64, "add sub mul neg abs floordiv mod pow shl shr"), (DType.i32, "mul floordiv truncdiv fmod shl neg"), (DType.i8, "mul abs shl"),
        (DType.i16, "mul mod"), (DType.f32, "exp log sin tanh erf pow floordiv exp2 log1p"), (DType.f16, "add exp"),
    ):
        for kernel, args in operations(dtype, names):
            tensors = {f"x{k}": a for k, a in enumerate(args)} | {"y": torch.empty(args[0].numel(), dtype=kernel.buffers["y"].dtype.torch)}
            kernels.append((kernel, tensors, ()))
    for source in (DType.f32, DType.f64):
        for target in (DType.i64, DType.i32, DType.u8, DType.f16):
            x = operands("neg", source)[0]
            y = torch.empty(x.numel(), dtype=target.torch)
            kernels.append((pointwise(f"c_{source.value}_{target.value}", [source], "cast", target), {"x0": x, "y": y}, ()))
    random = Random(7)
    for n in range(12):
        kernel = random.kernel(f"r{n}")
        kernels.append((kernel, inputs(kernel, n)[0], ()))
    for kernel in (softmax(DType.f32, "0"), softmax(DType.f32, "1"), layer_norm(DType.bf16), reduction("argmax", DType.f32, "0")):
        for k, shape in enumerate(((37, 19), (3, 0), (0, 3))):
            named = Kernel(f"{kernel.name}_{k}", *(getattr(kernel, f) for f in "outer phases reads writes sizes buffers local".split()))
            sizes = dict(zip(kernel.sizes, shape, strict=True))
            tensors = {n: torch.ones([int(d.subs(sizes)) for d in b.sizes], dtype=b.dtype.torch) for n, b in kernel.buffers.items()}
            kernels.append((named, tensors, shape))
    (tmp_path / "all.cpp").write_text(driver(kernels, tmp_path))
    flags = [f for f in cpp_build.FLAGS if f not in ("-O2", "-shared", "-fPIC", "-fno-exceptions", "-fno-rtti")]
    sanitize = ["-O1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    command = cpp_build.compiler()
    assert command is not None
    built = subprocess.run([*command, *flags, *sanitize, str(tmp_path / "all.cpp"), "-o", str(tmp_path / "all"), "-lm"], capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("the sanitizers' libraries are not installed")
    assert built.returncode == 0, built.stderr[-3000:]
    done = subprocess.run([str(tmp_path / "all")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def test_one_flat_loop_for_one_dimension() -> None:
    i, n = symbol("i"), symbol("n")
    loops = ((i, n),)
    phase = Phase((), (Store("y", loops, i, Load(DType.f32, "x", i)),))
    kernel = Kernel("k", loops, (phase,), ("x",), ("y",), (n,), buffers(buffer("x", (n,)), buffer("y", (n,))))
    source = print_unit([kernel]).source
    assert source.count("#pragma omp simd") == 1
