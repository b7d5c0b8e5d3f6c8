"""Kernels of many shapes against eager torch: reductions, both forms of loops, cuts, gathers, selects, local buffers, phases."""

from __future__ import annotations

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dynamo_nb.backends.triton_cpp.ir import REDUCTIONS, Const, DType, Expr, Index, Kernel, Load, Loops, Phase, Reduce, Select, Statement, Store, loads

from .cpp_helpers import ZERO, Built, buffer, buffers, fold, imitate, op, same, symbol, ulps, values
from .random_kernels import Random, inputs

I, J, K, S0, S1 = (symbol(n) for n in ("i", "j", "k", "s0", "s1"))  # noqa: E741
ROWS: Loops = ((I, S0),)
COLUMNS: Loops = ((J, S1),)


def reduction(kind: str, dtype: DType, along: str) -> Kernel:
    """Of x[s0, s1]: over its rows ("0"), its columns ("1") or all of it."""
    outer, inner = {"0": (COLUMNS, ROWS), "1": (ROWS, COLUMNS), "all": ((), ROWS + COLUMNS)}[along]
    result = DType.b1 if kind in ("any", "all") else DType.i64 if kind.startswith("arg") or (kind in ("sum", "prod") and not dtype.is_float) else dtype
    made = buffers(buffer("x", (S0, S1), dtype), buffer("y", tuple(n for _, n in outer) or (1,), result))
    at = outer[0][0] if outer else ZERO
    statement = Reduce("y", outer, inner, at, kind, Load(dtype, "x", I * S1 + J))
    return Kernel(f"{kind}_{along}", outer, (Phase(inner, (statement,)),), ("x",), ("y",), (S0, S1), made)


@pytest.mark.parametrize("dtype", DType)
def test_reductions(dtype: DType) -> None:
    ways = ("0", "1", "all") if dtype in (DType.f32, DType.i64) else ("0", "1")
    built = Built([reduction(kind, dtype, along) for kind in REDUCTIONS for along in ways])
    assert {built.unit.kernels["sum_0"].form, built.unit.kernels["sum_1"].form} == {"inner", "outer"}
    for shape in ((3, 5), (1, 1), (70, 300), (300, 70), (2, 9001), (0, 4), (4, 0)):
        for special in (False, True):
            x = values(dtype, shape[0] * shape[1], 3).reshape(shape)
            if dtype.is_float and not special:
                x = torch.randn(shape).to(dtype.torch)
            for kind in REDUCTIONS:
                if special and dtype.is_float and kind in ("sum", "prod"):
                    continue
                for along in ways:
                    check_reduction(built, kind, along, x)


def check_reduction(built: Built, kind: str, along: str, x: torch.Tensor) -> None:
    kernel = built.kernels[f"{kind}_{along}"]
    dtype = kernel.buffers["y"].dtype
    rows = {"0": x.T, "1": x, "all": x.reshape(1, -1)}[along]
    if 0 in rows.shape and (kind not in ("sum", "prod", "any", "all") or 0 in rows.shape[:1]):
        return
    statement = kernel.phases[0].statements[0]
    assert isinstance(statement, Reduce)
    exact = dtype in (DType.f32, DType.f16, DType.bf16) and kind in ("sum", "prod")
    expected = fold(statement, DType.f64 if exact else dtype, rows.double() if exact else rows)
    got = torch.empty(expected.shape, dtype=dtype.torch)
    built(kernel.name, {"x": x.contiguous(), "y": got}, tuple(x.shape), cuts=(0.2, 0.7))
    if dtype.is_float and kind in ("sum", "prod"):
        size = rows.double().abs().sum(-1) if kind == "sum" else expected.abs() * max(1, rows.shape[1]) ** 0.5
        allowed = size * {8: 1e-15, 4: 2e-7, 2: 1e-3 if dtype is DType.f16 else 8e-3}[dtype.itemsize] + (1e-300 if dtype is DType.f64 else 1e-37)
        if dtype is DType.f16:
            allowed += 1e-7
        assert ((got.double() - expected.double()).abs() <= allowed).all() or same(got, expected.to(dtype.torch)), (kind, along, x.shape)
    else:
        assert same(got, expected), (kind, along, x.shape, got, expected)


def test_sums_are_as_exact_as_eagers() -> None:
    built = Built([reduction("sum", DType.f32, along) for along in ("0", "1", "all")])
    torch.manual_seed(1)
    x = torch.rand(1500, 1700) + 100
    for along, dim in (("0", 0), ("1", 1), ("all", (0, 1))):
        exact = x.double().sum(dim)
        got = torch.empty(exact.numel())
        built(f"sum_{along}", {"x": x, "y": got}, tuple(x.shape))
        ours, eagers = ((t.flatten() - exact.flatten()).abs().max() for t in (got, x.sum(dim)))
        assert ours <= eagers + exact.abs().max() * 2.0**-24


# -- normalisations --------------------------------------------------------------------------------------------
def softmax(dtype: DType, along: str) -> Kernel:
    """Four phases over local buffers; along "1" each row is a point, along "0" each column (strips)."""
    outer, inner, n = (ROWS, COLUMNS, S1) if along == "1" else (COLUMNS, ROWS, S0)
    v, full = inner[0][0], outer + inner
    x = op("cast", Load(dtype, "x", I * S1 + J), dtype=DType.f32)
    e = op("exp", op("sub", x, Load(DType.f32, "m", ZERO)))
    out = op("cast", op("mul", Load(DType.f32, "e", v), Load(DType.f32, "r", ZERO)), dtype=dtype)
    one = Const(DType.f32, 1.0)
    phases = (
        Phase(inner, (Reduce("m", outer, inner, ZERO, "max", x),)),
        Phase(inner, (Store("e", full, v, e), Reduce("s", outer, inner, ZERO, "sum", e))),
        Phase((), (Store("r", outer, ZERO, op("div", one, Load(DType.f32, "s", ZERO))),)),
        Phase(inner, (Store("y", full, I * S1 + J, out),)),
    )
    made = buffers(
        buffer("x", (S0, S1), dtype), buffer("y", (S0, S1), dtype), buffer("e", (n,), kind="local"), *(buffer(b, (), kind="local") for b in "msr"),
    )
    return Kernel(f"softmax_{along}_{dtype.value}", outer, phases, ("x",), ("y",), (S0, S1), made, ("m", "s", "r", "e"))


def layer_norm(dtype: DType, most: bool = True) -> Kernel:
    """Two reductions in one phase (most: the second); statistics stored, then read at the same point."""
    x = op("cast", Load(dtype, "x", I * S1 + J), dtype=DType.f32)
    n = op("cast", Index(DType.i64, S1), dtype=DType.f32)
    mean = op("div", Load(DType.f32, "sum", I), n)
    d = op("sub", x, mean)
    scale = op("rsqrt", op("add", op("div", Load(DType.f32, "square", ZERO), n), Const(DType.f32, 1e-5)))
    out = op("cast", op("mul", op("mul", d, scale), Load(DType.f32, "w", J)), dtype=dtype)
    extremes = (Reduce("most", ROWS, COLUMNS, I, "argmax", x),) if most else ()
    phases = (
        Phase(COLUMNS, (Reduce("sum", ROWS, COLUMNS, I, "sum", x),)),
        Phase(COLUMNS, (Reduce("square", ROWS, COLUMNS, ZERO, "sum", op("mul", d, d)), *extremes)),
        Phase(COLUMNS, (Store("y", ROWS + COLUMNS, I * S1 + J, out),)),
    )
    made = buffers(
        buffer("x", (S0, S1), dtype), buffer("w", (S1,)), buffer("y", (S0, S1), dtype), buffer("sum", (S0,)), buffer("most", (S0,), DType.i64),
        buffer("square", (), kind="local"),
    )
    return Kernel(f"layer_norm_{dtype.value}", ROWS, phases, ("x", "w"), ("y", "sum", "most")[: 2 + most], (S0, S1), made, ("square",))


@pytest.mark.parametrize("dtype", [DType.f32, DType.bf16, DType.f16])
def test_normalisations(dtype: DType) -> None:
    built = Built([softmax(dtype, "0"), softmax(dtype, "1"), layer_norm(dtype)])
    torch.manual_seed(0)
    units = 16 if dtype is DType.f32 else 1
    for shape in ((5, 7), (1, 1), (600, 33), (33, 600), (3, 0), (0, 3)):
        x = (torch.randn(shape) * 3).to(dtype.torch)
        for dim in (0, 1):
            got = torch.empty_like(x)
            built(f"softmax_{dim}_{dtype.value}", {"x": x, "y": got}, shape, cuts=(0.11, 0.5))
            if x.numel():       # the difference from the maximum is rounded to f32
                e = (x.float() - x.float().amax(dim, keepdim=True)).double().exp()
                assert ulps(got, (e / e.sum(dim, keepdim=True)).to(dtype.torch)) <= units
        w, got, total, most = torch.rand(shape[1]), torch.empty_like(x), torch.empty(shape[0]), torch.empty(shape[0], dtype=torch.int64)
        built(f"layer_norm_{dtype.value}", {"x": x, "w": w, "y": got, "sum": total, "most": most}, shape, cuts=(0.4,))
        if shape[1]:
            expected = torch.layer_norm(x.float(), (shape[1],), w)
            assert torch.allclose(got.float(), expected, rtol=2e-5 if dtype is DType.f32 else 1e-2, atol=1e-5 if dtype is DType.f32 else 1e-3)
            assert torch.equal(most, x.argmax(1))


# -- indices -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.f32, DType.f16, DType.i64, DType.b1])
def test_gather_and_pad(dtype: DType) -> None:
    """y[i, j] = table[ids[i], j]; z = a row of two zeros, x, two zeros, x being empty at times."""
    row = sympy.Symbol("row", integer=True)
    gathered = Load(dtype, "table", row * S1 + J, ((row, Load(DType.i64, "ids", I)),))
    loops = ROWS + COLUMNS
    gather = Kernel(
        "gather", loops, (Phase((), (Store("y", loops, I * S1 + J, gathered),)),), ("table", "ids"), ("y",), (S0, S1),
        buffers(buffer("table", (10, S1), dtype), buffer("ids", (S0,), DType.i64), buffer("y", (S0, S1), dtype)),
    )
    k = Index(DType.i64, K)
    inside = op("and", op("ge", k, Const(DType.i64, 2)), op("lt", k, Index(DType.i64, S0 + 2)))
    zero = Const(dtype, False if dtype is DType.b1 else 0)
    wide: Loops = ((K, S0 + 4),)
    pad = Kernel(
        "pad", wide, (Phase((), (Store("z", wide, K, Select(dtype, inside, Load(dtype, "x", K - 2), zero)),)),), ("x",), ("z",), (S0,),
        buffers(buffer("x", (S0,), dtype), buffer("z", (S0 + 4,), dtype)),
    )
    built = Built([gather, pad])
    for n in (0, 1, 5, 700):
        table, ids = values(dtype, 70, 1).reshape(10, 7), torch.randint(0, 10, (n,))
        got = torch.empty(n, 7, dtype=dtype.torch)
        built("gather", {"table": table, "ids": ids, "y": got}, (n, 7), cuts=(0.33, 0.34, 0.8))
        assert same(got, table[ids])
        x = values(dtype, n, 2)
        out = torch.empty(n + 4, dtype=dtype.torch)
        built("pad", {"x": x, "z": out}, (n,), cuts=(0.5,))
        assert same(out, torch.nn.functional.pad(x.view(torch.uint8) if dtype is DType.b1 else x, (2, 2)).to(dtype.torch))


def test_a_value_needed_on_both_sides_and_inside_a_condition() -> None:
    """select(c, f(load), g(load)), and a load guarded by one condition that decides another."""
    k, n = Index(DType.i64, I), Index(DType.i64, S0)
    inside = op("lt", k, n)
    x = Load(DType.f32, "x", I)
    positive = Select(DType.b1, inside, op("gt", x, Const(DType.f32, 0.0)), Const(DType.b1, False))
    value = Select(DType.f32, positive, op("exp", x), Select(DType.f32, inside, op("neg", x), Const(DType.f32, -1.0)))
    loops: Loops = ((I, S0 + 3),)
    kernel = Kernel(
        "k", loops, (Phase((), (Store("y", loops, I, value),)),), ("x",), ("y",), (S0,), buffers(buffer("x", (S0,)), buffer("y", (S0 + 3,))),
    )
    built = Built([kernel])
    for size in (0, 1, 1000):
        x_ = torch.randn(size)
        got = torch.empty(size + 3)
        built("k", {"x": x_, "y": got}, (size,))
        assert torch.allclose(got, torch.cat([torch.where(x_ > 0, x_.exp(), -x_), -torch.ones(3)]))


# -- random kernels ----------------------------------------------------------------------------------------------
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.floats(0, 1), max_size=4))
def test_random_kernels(seed: int, cuts: list[float]) -> None:
    random = Random(seed)
    kernels = [random.kernel(f"k{n}") for n in range(6)]
    built = Built(kernels)
    for kernel in kernels:
        tensors, points = inputs(kernel, seed)
        built(kernel.name, tensors, (), tuple(cuts))
        for statement in (s for phase in kernel.phases for s in phase.statements):
            check(statement, kernel, tensors, points)


def check(statement: Statement, kernel: Kernel, tensors: dict[str, torch.Tensor], points: dict[sympy.Symbol, torch.Tensor]) -> None:
    value: Expr = statement.value
    expected = imitate(value, tensors, points)
    got = tensors[statement.buffer]
    if isinstance(statement, Reduce):
        outer = expected.shape[: len(kernel.outer)]
        expected = fold(statement, kernel.buffers[statement.buffer].dtype, expected.reshape(*outer, -1))
    assert same(got, expected.reshape(got.shape)), f"{kernel}\n{len(loads(value))} loads\n{got.flatten()[:20]}\n{expected.flatten()[:20]}"
