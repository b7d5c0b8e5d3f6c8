"""Random kernels whose results eager torch reproduces bit for bit: no elementary functions, no float sums."""

from __future__ import annotations

import math
import random

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from dynamo_nb.backends.triton_cpp.ir import Buffer, Const, DType, Expr, Index, Kernel, Load, Loops, Phase, Reduce, Select, Store

from .cpp_helpers import buffer, op, symbol, values

FLOAT = "add sub mul div max min fmax fmin neg abs floor ceil round trunc sign copysign".split()
INT = "add sub mul max min neg abs and or xor not sign".split()
BOOL = "and or xor not".split()
COMPARE = "lt le gt ge eq ne".split()
UNARY = frozenset("neg abs floor ceil round trunc sign not".split())


class Random:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def kernel(self, name: str) -> Kernel:
        r = self.r
        dims = r.randint(1, 3)
        self.loops: Loops = tuple((symbol(f"v{k}"), sympy.Integer(r.choice([1, 2, 3, 5, 17, 40, 300 if dims < 3 else 9]))) for k in range(dims))
        self.made: dict[str, Buffer] = {}
        self.exprs: list[Expr] = []
        for _ in range(r.randint(2, 4)):
            self.exprs.append(self.load())
        for _ in range(r.randint(1, 14)):
            self.exprs.append(self.step())
        outer: Loops = self.loops
        folded: Loops = ()
        kind: str | None = None
        if r.random() < 0.6:
            cut, kind = r.randint(0, dims - 1), r.choice(["max", "min", "any", "all", "argmax", "argmin", "sum"])
            outer, folded = self.loops[:cut], self.loops[cut:]
            if r.random() < 0.3 and dims > 1:     # over the first dimension: strips
                outer, folded = self.loops[1:], self.loops[:1]
        return self.finish(name, outer, folded, kind)

    def finish(self, name: str, outer: Loops, folded: Loops, kind: str | None) -> Kernel:
        value = self.exprs[-1]
        if kind == "sum" and value.dtype.is_float:
            kind = "max"
        offset, sizes = flat(outer), tuple(n for _, n in outer)
        reads = tuple(self.made)
        if kind is None:
            self.made["y"] = buffer("y", sizes, value.dtype, "made")
            loops: Loops = outer
            folded_loops: Loops = ()
            if self.r.random() < 0.4:             # some of the loops as a phase's
                cut = self.r.randint(0, len(outer))
                loops, folded_loops = outer[:cut], outer[cut:]
            return Kernel(name, loops, (Phase(folded_loops, (Store("y", outer, offset, value),)),), reads, ("y",), (), self.made)
        dtype = value.dtype
        if kind in ("any", "all"):
            dtype = DType.b1
        elif kind.startswith("arg") or kind == "sum":
            dtype = DType.i64
        self.made["y"] = buffer("y", sizes or (1,), dtype, "made")
        return Kernel(name, outer, (Phase(folded, (Reduce("y", outer, folded, offset, kind, value),)),), reads, ("y",), (), self.made)

    # -- expressions ------------------------------------------------------------------------------------------
    def load(self) -> Load:
        dtype = self.r.choice(list(DType))
        name = f"x{len(self.made)}"
        kept = [(v, n) for v, n in self.loops if self.r.random() < 0.8]
        if self.r.random() < 0.3:
            self.r.shuffle(kept)
        offset = flat(tuple(kept))
        numel = math.prod(int(n) for _, n in kept)
        if self.r.random() < 0.2 and numel > 4:
            offset = FloorDiv(offset, 3) + Mod(offset, 2)
        self.made[name] = buffer(name, (numel,), dtype)
        return Load(dtype, name, offset)

    def any(self, dtype: DType | None = None) -> Expr:
        found = self.r.choice(self.exprs)
        return found if dtype is None or found.dtype is dtype else op("cast", self.exact(found, dtype), dtype=dtype)

    def exact(self, expr: Expr, dtype: DType) -> Expr:
        """expr, or a bool of it where the cast from float to integer may go out of range, which torch leaves open."""
        return op("gt", expr, Const(expr.dtype, 0.0)) if expr.dtype.is_float and not dtype.is_float else expr

    def step(self) -> Expr:
        r = self.r
        choice = r.random()
        a = self.any()
        if choice < 0.12:
            v, n = r.choice(self.loops)
            return Index(DType.i64, v * r.randint(1, 3) + r.randint(-2, 2))
        if choice < 0.3:
            return self.select(a.dtype)
        if choice < 0.4:
            return op("where", self.any(DType.b1), a, self.any(a.dtype))
        if choice < 0.5:
            return op(r.choice(COMPARE), a, self.any(a.dtype))
        if choice < 0.6:
            target = r.choice(list(DType))
            return op("cast", self.exact(a, target), dtype=target)
        name = r.choice(FLOAT if a.dtype.is_float else BOOL if a.dtype is DType.b1 else INT)
        return op(name, a) if name in UNARY else op(name, a, self.any(a.dtype))

    def select(self, dtype: DType) -> Expr:
        """One side loads beyond the end of its buffer where the condition fails."""
        v, n = self.r.choice(self.loops)
        size = max(1, int(n) // 2)
        name = f"x{len(self.made)}"
        self.made[name] = buffer(name, (size,), dtype)
        inside = op("lt", Index(DType.i64, v), Const(DType.i64, size))
        loaded: Expr = Load(dtype, name, v)
        if dtype.is_float and self.r.random() < 0.5:
            loaded = op("mul", loaded, loaded)
        if self.r.random() < 0.3:
            return Select(dtype, op("not", inside), self.any(dtype), loaded)
        return Select(dtype, op("and", inside, self.any(DType.b1)), loaded, self.any(dtype))


def flat(loops: Loops) -> sympy.Expr:
    offset = sympy.Integer(0)
    for v, n in loops:
        offset = offset * n + v
    return offset


def inputs(kernel: Kernel, seed: int) -> tuple[dict[str, torch.Tensor], dict[sympy.Symbol, torch.Tensor]]:
    """Memory for a kernel's buffers; all its loop points, outer variables first."""
    tensors = {}
    for k, (name, b) in enumerate(kernel.buffers.items()):
        numel = math.prod(int(n) for n in b.sizes)
        tensors[name] = values(b.dtype, numel, seed % 2**31 + k)
    loops = kernel.outer + kernel.phases[0].loops
    points = {}
    for k, (v, n) in enumerate(loops):
        points[v] = torch.arange(int(n)).reshape([-1 if d == k else 1 for d in range(len(loops))])
    return tensors, points
