"""Hand-built kernels with their eager results: run interpreted, and compiled ahead of time for devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.ir import DType, Phase, Reduce, Store
from dynamo_nb.backends.triton_cpp.triton_printer import Config
from tests.backends.triton_cpp.triton_building import (
    I0,
    I1,
    I2,
    I3,
    I4,
    ONE_VALUE,
    S0,
    S1,
    Case,
    buffer,
    cast,
    const,
    index,
    kernel,
    load,
    loops,
    op,
    select,
)

F32, F64, F16, BF16, I64, I32, B1 = DType.f32, DType.f64, DType.f16, DType.bf16, DType.i64, DType.i32, DType.b1
CASES: dict[str, Callable[[], Case]] = {}
BOTH = (Config(2, 32), Config(4, 8))      # rows up to 32 points: one tile, and a loop over tiles
SHORT = (Config(4, 16), Config(2, 4))


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def each(values: dict[str, Any]) -> Callable[[Callable[[Any], Case]], None]:
    """Registers the case once for each value."""
    def register(make: Callable[[Any], Case]) -> None:
        for name, value in values.items():
            CASES[f"{make.__name__}_{name}"] = lambda value=value: make(value)      # type: ignore[misc]
    return register


def random(*sizes: int, dtype: DType = F32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype is B1:
        return torch.randint(0, 2, sizes, generator=generator).bool()
    if dtype.is_int:
        return torch.randint(0 if dtype is DType.u8 else -100, 101, sizes, generator=generator).to(dtype.torch)
    return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype.torch)


def pointwise(name: str, outer: ir.Loops, value: ir.Expr, offset: Any, buffers: list[ir.Buffer], sizes: tuple[Any, ...] = ()) -> ir.Kernel:
    return kernel(name, outer, [Phase((), (Store("o", outer, sympy.sympify(offset), value, ("node",)),))], buffers, ["o"], sizes)


# -- pointwise ------------------------------------------------------------------------------------------
@each({d.value: d for d in DType if d is not B1})
def chain(dtype: DType) -> Case:
    a, b = random(5, 7, dtype=dtype), random(5, 7, dtype=dtype, seed=1)
    x, y = load("a", dtype, 7 * I0 + I1), load("b", dtype, 7 * I0 + I1)
    value = op("add", op("mul", x, y), op("where", op("lt", x, y), op("sub", x, y), op("max", x, const(3, dtype))))
    outer = loops((I0, 5), (I1, 7))
    want = a * b + torch.where(a < b, a - b, torch.maximum(a, torch.full_like(a, 3)))
    return Case(pointwise("chain", outer, value, 7 * I0 + I1, [buffer("a", dtype, [5, 7]), buffer("b", dtype, [5, 7]), buffer("o", dtype, [5, 7])]),
                [a, b, torch.empty_like(a)], [want])


@case
def broadcast_transposed_strided() -> Case:
    a, row, strided = random(6, 4), random(4, seed=1), random(4, 12, seed=2)[:, ::2]
    outer = loops((I0, 4), (I1, 6))
    value = op("add", op("mul", load("a", F32, 4 * I1 + I0), load("row", F32, I0)), load("strided", F32, 12 * I0 + 2 * I1))
    buffers = [buffer("a", F32, [6, 4]), buffer("row", F32, [4]), buffer("strided", F32, [4, 6], [12, 2]), buffer("o", F32, [4, 6])]
    return Case(pointwise("views", outer, value, 6 * I0 + I1, buffers), [a, row, strided, torch.empty(4, 6)], [a.T * row[:, None] + strided])


@case
def scalar_tensors_and_flags() -> Case:
    a, scale, flags = random(9), random(1, seed=1).reshape(()), random(9, dtype=B1)
    value = op("where", op("and", load("flags", B1, I0), op("gt", load("a", F32, I0), const(-0.5, F32))),
               op("mul", load("a", F32, I0), load("scale", F32, 0)), const(float("-inf"), F32))
    buffers = [buffer("a", F32, [9]), buffer("scale", F32, []), buffer("flags", B1, [9]), buffer("o", F32, [9])]
    want = torch.where(flags & (a > -0.5), a * scale, torch.tensor(float("-inf")))
    return Case(pointwise("flags", loops((I0, 9)), value, I0, buffers), [a, scale, flags, torch.empty(9)], [want])


@case
def several_results() -> Case:
    a, outer = random(33), loops((I0, 33))
    doubled = op("add", load("a", F32, I0), load("a", F32, I0))
    stores = (Store("p", outer, I0, doubled), Store("q", outer, I0, op("gt", doubled, const(0, F32))), Store("o", outer, I0, cast(doubled, I32)))
    buffers = [buffer("a", F32, [33]), buffer("p", F32, [33]), buffer("q", B1, [33]), buffer("o", I32, [33])]
    made = [torch.empty(33), torch.empty(33, dtype=torch.bool), torch.empty(33, dtype=torch.int32)]
    return Case(kernel("several", outer, [Phase((), stores)], buffers, ["p", "q", "o"]), [a, *made], [2 * a, a > 0, (2 * a).int()])


@case
def gather() -> Case:
    table, rows = random(11, 3), torch.tensor([4, -1, 0, 10, -11])
    at = sympy.Symbol("at", integer=True)
    row = load("rows", I64, I0)
    wrapped = op("where", op("lt", row, const(0, I64)), op("add", row, const(11, I64)), row)
    value = load("table", F32, 3 * at + I1, (at, wrapped))
    buffers = [buffer("table", F32, [11, 3]), buffer("rows", I64, [5]), buffer("o", F32, [5, 3])]
    return Case(pointwise("gather", loops((I0, 5), (I1, 3)), value, 3 * I0 + I1, buffers), [table, rows, torch.empty(5, 3)], [table[rows]])


@case
def padding() -> Case:
    a = random(4, 5)
    inside = op("and", op("and", op("ge", index(I0 - 2), const(0, I64)), op("lt", index(I0 - 2), const(4, I64))),
                op("and", op("ge", index(I1 - 1), const(0, I64)), op("lt", index(I1 - 1), const(5, I64))))
    # Far beyond the memory where not inside: a load there would fault.
    far = 10**9 * sympy.Integer(1)
    value = select(inside, load("a", F32, 5 * (I0 - 2) + I1 - 1), const(7.0, F32))
    other = select(op("not", inside), const(1.0, F32), load("a", F32, 5 * (I0 - 2) + I1 - 1 + far * FloorDiv(I0, 100)))
    outer = loops((I0, 8), (I1, 8))
    buffers = [buffer("a", F32, [4, 5]), buffer("p", F32, [8, 8]), buffer("o", F32, [8, 8])]
    k = kernel("padding", outer, [Phase((), (Store("p", outer, 8 * I0 + I1, value), Store("o", outer, 8 * I0 + I1, other)))], buffers, ["p", "o"])
    pad = (1, 2, 2, 2)
    return Case(k, [a, torch.empty(8, 8), torch.empty(8, 8)], [torch.nn.functional.pad(a, pad, value=7.0), torch.nn.functional.pad(a, pad, value=1.0)])


@case
def concatenation() -> Case:
    parts = [random(n, seed=n) for n in (3, 4, 5)]
    first = op("lt", index(I0), const(3, I64))
    second = op("lt", index(I0), const(7, I64))
    value = select(first, load("a", F32, I0), select(second, load("b", F32, I0 - 3), load("c", F32, I0 - 7)))
    buffers = [buffer(n, F32, [s]) for n, s in (("a", 3), ("b", 4), ("c", 5), ("o", 12))]
    return Case(pointwise("concatenation", loops((I0, 12)), value, I0, buffers), [*parts, torch.empty(12)], [torch.cat(parts)])


@case
def index_values() -> Case:
    n = 40
    value = op("add", index(3 * I0 + 2**40), op("mul", index(FloorDiv(I0 - 20, 7)), index(Mod(I0, 7) + Mod(I0 - 20, 6))))
    i = torch.arange(n)
    want = 3 * i + 2**40 + ((i - 20) // 7) * (i % 7 + (i - 20) % 6)
    return Case(pointwise("indices", loops((I0, n)), value, I0, [buffer("a", F32, [1]), buffer("o", I64, [n])]),
                [torch.zeros(1), torch.empty(n, dtype=torch.int64)], [want])


@case
def divided_offsets() -> Case:
    a = random(6, 4)      # the transposed copy, flattened, read back as (8, 3)
    flat = 3 * I0 + I1
    value = load("a", F32, 4 * Mod(flat, 6) + FloorDiv(flat, 6))
    return Case(pointwise("divided", loops((I0, 8), (I1, 3)), value, flat, [buffer("a", F32, [6, 4]), buffer("o", F32, [8, 3])]),
                [a, torch.empty(8, 3)], [a.T.reshape(8, 3)])


@case
def symbolic_pointwise() -> Case:
    a, b = random(13, 6), random(6, seed=1)
    outer = loops((I0, S0), (I1, S1))
    value = op("sub", load("a", F32, S1 * I0 + I1), op("mul", load("b", F32, S1 - 1 - I1), cast(index(S0 * S1), F32)))
    buffers = [buffer("a", F32, [S0, S1]), buffer("b", F32, [S1]), buffer("o", F32, [S0, S1])]
    return Case(pointwise("symbolic", outer, value, S1 * I0 + I1, buffers, (S0, S1)), [a, b, torch.empty(13, 6)], [a - b.flip(0) * 78], sizes=(13, 6))


@case
def no_elements() -> Case:
    k = pointwise("nothing", loops((I0, S0), (I1, 3)), load("a", F32, 3 * I0 + I1), 3 * I0 + I1, [buffer("a", F32, [S0, 3]), buffer("o", F32, [S0, 3])], (S0,))
    return Case(k, [torch.empty(0, 3), torch.empty(0, 3)], [torch.empty(0, 3)], sizes=(0,))


# -- reductions -----------------------------------------------------------------------------------------
EAGER: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda t, d: t.sum(d), "prod": lambda t, d: t.prod(d), "max": lambda t, d: t.amax(d), "min": lambda t, d: t.amin(d),
    "any": lambda t, d: t.bool().any(d), "all": lambda t, d: t.bool().all(d), "argmax": lambda t, d: t.argmax(d), "argmin": lambda t, d: t.argmin(d),
}


def result_type(kind: str, dtype: DType) -> DType:
    if kind in ("any", "all"):
        return B1
    if kind in ("argmax", "argmin") or (kind in ("sum", "prod") and not dtype.is_float):
        return I64
    return dtype


def reduction(kind: str, dtype: DType, a: torch.Tensor, dim: int, configs: tuple[Config, ...], tolerance: float) -> Case:
    rows, columns = a.shape
    outer, inner = (loops((I0, rows)), loops((I1, columns))) if dim == 1 else (loops((I0, columns)), loops((I1, rows)))
    offset = columns * I0 + I1 if dim == 1 else columns * I1 + I0
    result = result_type(kind, dtype)
    value: ir.Expr = load("a", dtype, offset)
    if result is B1 and dtype is not B1:
        value = cast(value, B1)
    elif kind in ("sum", "prod") and dtype is not result:
        value = cast(value, result)
    n = rows if dim == 1 else columns
    k = kernel(f"{kind}_{dtype.value}", outer, [Phase(inner, (Reduce("o", outer, inner, I0, kind, value, ("node",)),))],
               [buffer("a", dtype, [rows, columns]), buffer("o", result, [n])], ["o"])
    want = EAGER[kind](a.double() if dtype in (F16, BF16) and kind in ("sum", "prod") else a, dim).to(result.torch)
    return Case(k, [a, torch.empty(n, dtype=result.torch)], [want], configs=configs, tolerance=tolerance)


ROW_KINDS = {F32: ir.REDUCTIONS, BF16: ("sum", "max", "argmax"), I32: ("sum", "min"), DType.u8: ("max", "argmin", "any"), I64: ("prod", "max", "argmin")}


@each({f"{k}_{d.value}": (k, d) for d, kinds in ROW_KINDS.items() for k in kinds})
def rows(which: tuple[str, DType]) -> Case:
    kind, dtype = which
    a = random(3, 11, dtype=dtype)
    if kind == "prod" and dtype in (F32, BF16):
        a = a.abs() + 0.5
    if kind in ("any", "all"):
        a[0], a[1, 2:] = 0, 0
    if kind in ("argmax", "argmin"):
        a[1] = a[1, 0]      # the first of equals
    return reduction(kind, dtype, a, 1, SHORT, 16 if dtype.is_float and kind in ("sum", "prod") else 0)


@each({k: k for k in ("sum", "max", "all", "argmin")})
def columns(kind: str) -> Case:
    a = random(11, 5)
    return reduction(kind, F32, a.abs() + 0.5 if kind == "prod" else a, 0, SHORT, 16 if kind in ("sum", "prod") else 0)


@each({k: k for k in ("max", "min", "argmax", "argmin")})
def rows_with_nan(kind: str) -> Case:
    a = random(4, 11)
    a[0, 3] = a[0, 9] = a[1, 10] = float("nan")
    a[2] = float("-inf") if kind in ("max", "argmax") else float("inf")
    return reduction(kind, F32, a, 1, SHORT, 0)


@each({d.value: d for d in (F64, F16, B1, DType.i8, DType.i16)})
def rows_summed_and_largest_position(dtype: DType) -> Case:
    a, outer, inner = random(3, 9, dtype=dtype), loops((I0, 3)), loops((I1, 9))
    x = load("a", dtype, 9 * I0 + I1)
    result = result_type("sum", dtype)
    whole = x if dtype is result else cast(x, result)
    statements = (Reduce("s", outer, inner, I0, "sum", whole), Reduce("p", outer, inner, I0, "argmax", x))
    buffers = [buffer("a", dtype, [3, 9]), buffer("s", result, [3]), buffer("p", I64, [3])]
    made = [torch.empty(3, dtype=result.torch), torch.empty(3, dtype=torch.int64)]
    want = [a.double().sum(1).to(result.torch) if dtype.is_float else a.sum(1), a.to(torch.int8 if dtype is B1 else dtype.torch).argmax(1)]
    return Case(kernel("sums", outer, [Phase(inner, statements)], buffers, ["s", "p"]), [a, *made], want, configs=BOTH, tolerance=4)


@case
def integers_wrap() -> Case:
    a, outer, inner = torch.full((2, 9), 2**30, dtype=torch.int32), loops((I0, 2)), loops((I1, 9))
    x = load("a", I32, 9 * I0 + I1)
    statements = (Reduce("s", outer, inner, I0, "sum", x), Reduce("p", outer, inner, I0, "prod", op("add", x, const(3, I32))))
    k = kernel("wraps", outer, [Phase(inner, statements)], [buffer("a", I32, [2, 9]), buffer("s", I32, [2]), buffer("p", I32, [2])], ["s", "p"])
    want = [torch.full((2,), (9 * 2**30 + 2**31) % 2**32 - 2**31, dtype=torch.int32), (a + 3).long().prod(1).int()]
    return Case(k, [a, torch.empty(2, dtype=torch.int32), torch.empty(2, dtype=torch.int32)], want, configs=BOTH)


@case
def everything() -> Case:
    """All elements into one value: no outer loops, and a position in two inner loops."""
    a, inner = random(6, 7), loops((I1, 6), (I2, 7))
    x = load("a", F32, 7 * I1 + I2)
    statements = (Reduce("s", (), inner, ONE_VALUE, "sum", op("mul", x, x)), Reduce("p", (), inner, ONE_VALUE, "argmin", x))
    k = kernel("everything", (), [Phase(inner, statements)], [buffer("a", F32, [6, 7]), buffer("s", F32, []), buffer("p", I64, [])], ["s", "p"])
    return Case(k, [a, torch.empty(()), torch.empty((), dtype=torch.int64)], [(a * a).sum(), a.argmin()], configs=(Config(1, 64), Config(1, 16)), tolerance=8)


@case
def sum_of_nothing() -> Case:
    outer, inner = loops((I0, S0)), loops((I1, S1))
    x = load("a", F32, S1 * I0 + I1)
    statements = (Reduce("s", outer, inner, I0, "sum", x), Reduce("p", outer, inner, I0, "prod", x), Reduce("q", outer, inner, I0, "all", cast(x, B1)))
    buffers = [buffer("a", F32, [S0, S1]), *(buffer(n, d, [S0]) for n, d in (("s", F32), ("p", F32), ("q", B1)))]
    k = kernel("empty", outer, [Phase(inner, statements)], buffers, ["s", "p", "q"], (S0, S1))
    return Case(k, [torch.empty(3, 0), torch.empty(3), torch.empty(3), torch.empty(3, dtype=torch.bool)],
                [torch.zeros(3), torch.ones(3), torch.ones(3, dtype=torch.bool)], sizes=(3, 0), configs=BOTH)


# -- phases ---------------------------------------------------------------------------------------------
def softmax_kernel(dtype: DType, n: Any, m: Any, sizes: tuple[Any, ...] = ()) -> ir.Kernel:
    outer, p, q, r = loops((I0, n)), loops((I1, m)), loops((I2, m)), loops((I3, m))
    shifted = op("exp", op("sub", load("a", dtype, m * I0 + I2), load("top", dtype, 0)))
    phases = [
        Phase(p, (Reduce("top", outer, p, ONE_VALUE, "max", load("a", dtype, m * I0 + I1)),)),
        Phase(q, (Store("e", outer + q, I2, shifted), Reduce("total", outer, q, ONE_VALUE, "sum", shifted))),
        Phase(r, (Store("o", outer + r, m * I0 + I3, op("div", load("e", dtype, I3), load("total", dtype, 0)), ("softmax",)),)),
    ]
    local = [buffer("top", dtype, [], kind="local"), buffer("total", dtype, [], kind="local"), buffer("e", dtype, [m], kind="local")]
    return kernel("softmax", outer, phases, [buffer("a", dtype, [n, m]), buffer("o", dtype, [n, m]), *local], ["o"], sizes)


@each({d.value: d for d in (F32, F64, F16, BF16)})
def softmax(dtype: DType) -> Case:
    a = random(5, 23, dtype=dtype)
    e = (a - a.amax(1, keepdim=True)).exp()
    total = e.double().sum(1, keepdim=True).to(dtype.torch)
    return Case(softmax_kernel(dtype, 5, 23), [a, torch.empty_like(a)], [e / total], configs=BOTH, tolerance=4)


@case
def softmax_symbolic() -> Case:
    a = random(5, 23)
    return Case(softmax_kernel(F32, S0, S1, (S0, S1)), [a, torch.empty_like(a)], [a.softmax(1)], sizes=(5, 23), configs=BOTH, tolerance=8)


@each({d.value: d for d in (F32, BF16)})
def layer_norm(dtype: DType) -> Case:
    """Statistics in f32 through locals, also between phases without loops."""
    n, m = 5, 23
    a, weight, bias = random(n, m, dtype=dtype), random(m, dtype=dtype, seed=1), random(m, dtype=dtype, seed=2)
    outer, p, q, r = loops((I0, n)), loops((I1, m)), loops((I2, m)), loops((I3, m))

    def x(v: sympy.Symbol) -> ir.Expr:
        value = load("a", dtype, m * I0 + v)
        return value if dtype is F32 else cast(value, F32)

    def wide(name: str) -> ir.Expr:
        return load(name, F32, I3) if dtype is F32 else cast(load(name, dtype, I3), F32)

    centred = op("sub", x(I2), load("mean", F32, 0))
    result = op("add", op("mul", op("mul", load("centred", F32, I3), load("scale", F32, 0)), wide("weight")), wide("bias"))
    phases = [
        Phase(p, (Reduce("total", outer, p, ONE_VALUE, "sum", x(I1)),)),
        Phase((), (Store("mean", outer, ONE_VALUE, op("div", load("total", F32, 0), const(m, F32))),)),
        Phase(q, (Store("centred", outer + q, I2, centred), Reduce("square", outer, q, ONE_VALUE, "sum", op("mul", centred, centred)))),
        Phase((), (Store("scale", outer, ONE_VALUE, op("rsqrt", op("add", op("div", load("square", F32, 0), const(m, F32)), const(1e-5, F32)))),
                   )),
        Phase(r, (Store("o", outer + r, m * I0 + I3, result if dtype is F32 else cast(result, dtype), ("layer_norm",)),)),
    ]
    local = [buffer(name, F32, [], kind="local") for name in ("total", "mean", "square", "scale")] + [buffer("centred", F32, [m], kind="local")]
    buffers = [buffer("a", dtype, [n, m]), buffer("weight", dtype, [m]), buffer("bias", dtype, [m]), buffer("o", dtype, [n, m]), *local]
    want = torch.nn.functional.layer_norm(a.double(), (m,), weight.double(), bias.double()).to(dtype.torch)
    return Case(kernel("layer_norm", outer, phases, buffers, ["o"]), [a, weight, bias, torch.empty_like(a)], [want], configs=BOTH, tolerance=32, level=1)


@case
def in_place_then_reversed() -> Case:
    """A phase that overwrites what an earlier one read, and one that reads other positions of what was written."""
    n, m = 3, 21
    a, outer, p, q, r = random(n, m), loops((I0, n)), loops((I1, m)), loops((I2, m)), loops((I3, m))
    phases = [
        Phase(p, (Reduce("total", outer, p, ONE_VALUE, "sum", load("a", F32, m * I0 + I1)),)),
        Phase(q, (Store("a", outer + q, m * I0 + I2, op("sub", load("a", F32, m * I0 + I2), load("total", F32, 0))),)),
        Phase(r, (Store("o", outer + r, m * I0 + I3, op("mul", load("a", F32, m * I0 + m - 1 - I3), const(2, F32))),)),
    ]
    k = kernel("in_place", outer, phases, [buffer("a", F32, [n, m]), buffer("o", F32, [n, m]), buffer("total", F32, [], kind="local")], ["a", "o"])
    want = a - a.sum(1, keepdim=True)
    return Case(k, [a, torch.empty_like(a)], [want, 2 * want.flip(1)], configs=BOTH, tolerance=64, level=1)


@case
def local_in_another_shape() -> Case:
    """A local stored over one loop and read over two, in another order."""
    a, outer, p, q = random(3, 12), loops((I0, 3)), loops((I1, 12)), loops((I2, 3), (I3, 4))
    phases = [
        Phase(p, (Store("t", outer + p, I1, op("mul", load("a", F32, 12 * I0 + I1), const(3, F32))),)),
        Phase(q, (Store("o", outer + q, 12 * I0 + 4 * I2 + I3, load("t", F32, 3 * I3 + I2)),)),
    ]
    k = kernel("reshaped", outer, phases, [buffer("a", F32, [3, 12]), buffer("o", F32, [3, 12]), buffer("t", F32, [12], kind="local")], ["o"])
    return Case(k, [a, torch.empty_like(a)], [(3 * a).reshape(3, 4, 3).transpose(1, 2).reshape(3, 12)], configs=BOTH)


@case
def phases_of_different_sizes() -> Case:
    """Sums over 7 and over 12 points, each result subtracted from the other operand; two outer loops."""
    a, b = random(2, 3, 7), random(2, 3, 12, seed=1)
    outer, p, q, r, s = loops((I0, 2), (I1, 3)), loops((I2, 7)), loops((I2, 12)), loops((I3, 7)), loops((I4, 12))
    row = 3 * I0 + I1
    phases = [
        Phase(p, (Reduce("t", outer, p, ONE_VALUE, "sum", load("a", F32, 7 * row + I2)),)),
        Phase(q, (Reduce("u", outer, q, ONE_VALUE, "max", load("b", F32, 12 * row + I2)),)),
        Phase(r, (Store("o", outer + r, 7 * row + I3, op("sub", load("a", F32, 7 * row + I3), load("u", F32, 0))),)),
        Phase(s, (Store("z", outer + s, 12 * row + I4, op("sub", load("b", F32, 12 * row + I4), load("t", F32, 0))),)),
    ]
    local = [buffer("t", F32, [], kind="local"), buffer("u", F32, [], kind="local")]
    buffers = [buffer(name, F32, [2, 3, size]) for name, size in (("a", 7), ("b", 12), ("o", 7), ("z", 12))]
    k = kernel("sizes", outer, phases, [*buffers, *local], ["o", "z"])
    want = [a - b.amax(2, keepdim=True), b - a.sum(2, keepdim=True)]
    return Case(k, [a, b, torch.empty_like(a), torch.empty_like(b)], want, configs=(Config(2, 16), Config(4, 4)), tolerance=16, level=1)
