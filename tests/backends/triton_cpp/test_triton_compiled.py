"""Printed kernels compiled ahead of time for devices, none of which is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs Triton (an optional dependency)")

from dynamo_nb.backends.triton_cpp import triton_build, triton_files, triton_launch  # noqa: E402
from dynamo_nb.backends.triton_cpp.ir import DType  # noqa: E402
from dynamo_nb.backends.triton_cpp.triton_printer import Config, print_kernel  # noqa: E402
from tests.backends.triton_cpp.interpreted_operations import all_operations  # noqa: E402
from tests.backends.triton_cpp.triton_cases import CASES  # noqa: E402


@pytest.fixture(autouse=True)
def _own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNAMO_NB_CACHE_DIR", str(tmp_path))
    triton_launch.clear()


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    """One tile on sm_80, the loop over tiles (where there is one) on sm_90."""
    case = CASES[name]()
    for config, arch in ((case.configs[0], 80), (case.configs[-1], 90)):
        ptx, cubin = triton_build.compile_ahead(print_kernel(case.kernel, config), arch)
        assert f".target sm_{arch}" in ptx and cubin[:4] == b"\x7fELF"


# Those whose text, not only libdevice's function, depends on the width.
BY_WIDTH = ("div", "floordiv", "truncdiv", "mod", "min", "max", "fmin", "sqrt", "sigmoid", "signbit", "isinf", "sign", "round")


@pytest.mark.parametrize(("dtype", "arch"), [(DType.f32, 90), (DType.i64, 80), (DType.u8, 90), (DType.b1, 80)], ids=str)
def test_every_operation(dtype: DType, arch: int) -> None:
    assert triton_build.compile_ahead(print_kernel(all_operations(dtype), Config(512)), arch)[1][:4] == b"\x7fELF"


@pytest.mark.parametrize(("dtype", "arch"), [(DType.f64, 80), (DType.f16, 90), (DType.bf16, 80), (DType.i8, 90)], ids=str)
def test_operations_of_other_widths(dtype: DType, arch: int) -> None:
    assert triton_build.compile_ahead(print_kernel(all_operations(dtype, BY_WIDTH), Config(512)), arch)[1][:4] == b"\x7fELF"


def test_products_are_rounded_before_they_are_added() -> None:
    case = CASES["chain_f32"]()
    assert "fma" not in triton_build.compile_ahead(print_kernel(case.kernel, Config(64)), 90)[0]


def test_bf16_rounds_after_every_operation() -> None:
    case = CASES["chain_bf16"]()
    ptx = triton_build.compile_ahead(print_kernel(case.kernel, Config(64)), 90)[0]
    assert len(re.findall(r"(?:mul|add|sub|cvt)\.rn\.bf16", ptx)) >= 3 and "fma" not in ptx


def test_threads_wait_before_reading_what_others_wrote() -> None:
    case = CASES["in_place_then_reversed"]()
    source = print_kernel(case.kernel, case.configs[1])
    assert source.text.count("tl.debug_barrier()") == 2
    assert "bar.sync" in triton_build.compile_ahead(source, 80)[0]


def test_wide_indices() -> None:
    case = CASES["symbolic_pointwise"]()
    source = print_kernel(case.kernel, Config(64))
    assert source.index_type(13, 6) == "tl.int32" and source.index_type(2**17, 2**17) == "tl.int64"
    assert source.grid(13, 6) == (2,) and source.grid(0, 6) == (0,)
    assert triton_build.compile_ahead(source, 90, wide=True, aligned=False)[1][:4] == b"\x7fELF"


def test_every_suggested_configuration_prints() -> None:
    for make in CASES.values():
        kernel = make().kernel
        candidates = triton_build.configs(kernel)
        assert candidates and len(set(candidates)) == len(candidates)
        for config in candidates:
            source = print_kernel(kernel, config)
            compile(source.text, source.name, "exec")
            for number, origins in source.line_origins:
                assert source.text.split("\n")[number - 1].endswith("# " + ", ".join(origins))


def test_sources_are_files_written_once(tmp_path: Path) -> None:
    source = print_kernel(CASES["gather"]().kernel, Config(64))
    first = triton_files.function(source)
    assert triton_files.function(source) is first and [p.read_text() for p in tmp_path.rglob("*.py")] == [source.text]
    triton_launch.clear()
    assert triton_files.function(source) is not first and not list(tmp_path.rglob("*.partial"))


def test_tensors_on_cpu_are_refused() -> None:
    case = CASES["gather"]()
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        triton_launch.Launcher(case.kernel)(case.tensors)
