"""Making loop IR expressions: interned, folded, simplified; and reading tensors at indices.

In: operands and types. Out: `ir.Expr`s in which equal parts are one object. Before scheduling, memory is read by
`Read` (a buffer at a tuple of indices); `schedule` turns it into `ir.Load` once it knows where a value lives.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, PythonMod

from .ir import Const, DType, Expr, Index, Op, Select

ZERO, ONE = sympy.Integer(0), sympy.Integer(1)
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "signbit"})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Read(Expr):
    """The element of a buffer at an index; indirect: symbols in the index that stand for i64 values."""

    buffer: str
    index: tuple[sympy.Expr, ...]
    indirect: tuple[tuple[sympy.Symbol, Expr], ...] = ()

    @property
    def args(self) -> tuple[Expr, ...]:
        return tuple(e for _, e in self.indirect)


class Exprs:
    """Interns the expressions of one graph."""

    def __init__(self) -> None:
        self._known: dict[Any, Expr] = {}
        self._count = 0

    def _intern(self, key: Any, make: Callable[[], Expr]) -> Expr:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    # -- leaves -----------------------------------------------------------------------------------
    def const(self, value: Any, dtype: DType) -> Expr:
        """A constant converted to the type as C would: floats are rounded, integers wrap, booleans are != 0."""
        value = _converted(value, dtype)
        return self._intern(("const", dtype, repr(value)), lambda: Const(dtype, value))

    def index(self, expr: sympy.Expr) -> Expr:
        if expr.is_Integer:
            return self.const(int(expr), DType.i64)
        return self._intern(("index", expr), lambda: Index(DType.i64, expr))

    def read(self, dtype: DType, buffer: str, index: Sequence[sympy.Expr], indirect: tuple[tuple[sympy.Symbol, Expr], ...] = ()) -> Expr:
        index = tuple(index)
        key = ("read", buffer, index, tuple((s, id(e)) for s, e in indirect))
        return self._intern(key, lambda: Read(dtype, buffer, index, indirect))

    def symbol_of(self, value: Expr) -> sympy.Symbol:
        """A symbol that stands for an i64 value inside index expressions."""
        found = self._known.get(("symbol", id(value)))
        if found is None:
            self._count += 1
            found = self._known["symbol", id(value)] = sympy.Symbol(f"x{self._count - 1}", integer=True, nonnegative=True)  # type: ignore[assignment]
        return found  # type: ignore[return-value]

    # -- operations -------------------------------------------------------------------------------
    def op(self, name: str, *args: Expr, dtype: DType | None = None) -> Expr:
        """dtype: the result's; by default b1 for comparisons, else the operands'."""
        result = dtype or (DType.b1 if name in COMPARISONS else args[-1].dtype)
        simpler = self._simplify(name, args, result)
        if simpler is not None:
            return simpler
        key = (name, result, *map(id, args))
        return self._intern(key, lambda: Op(result, name, args))

    def cast(self, value: Expr, dtype: DType) -> Expr:
        if value.dtype is dtype:
            return value
        if isinstance(value, Const) and (math.isfinite(value.value) or dtype.is_float):
            return self.const(value.value, dtype)
        if isinstance(value, Op) and value.name == "cast" and dtype.is_float and _holds(value.dtype, value.operands[0].dtype):
            return self.cast(value.operands[0], dtype)
        return self._intern(("cast", dtype, id(value)), lambda: Op(dtype, "cast", (value,)))

    def select(self, cond: Expr, yes: Expr, no: Expr) -> Expr:
        if isinstance(cond, Const):
            return yes if cond.value else no
        return yes if yes is no else self._intern(("select", id(cond), id(yes), id(no)), lambda: Select(yes.dtype, cond, yes, no))

    def _simplify(self, name: str, args: tuple[Expr, ...], dtype: DType) -> Expr | None:
        """Only what is exact for every value, -0.0 and NaN too."""
        if name in ("mul", "div") and isinstance(args[1], Const) and args[1].value == 1 and dtype.is_float:
            return args[0]
        if name == "mul" and isinstance(args[0], Const) and args[0].value == 1 and dtype.is_float:
            return args[1]
        if dtype.is_int and name in ("add", "sub") and isinstance(args[1], Const) and args[1].value == 0:
            return args[0]
        if name == "and" and dtype is DType.b1:
            for mine, other in (args, args[::-1]):
                if isinstance(mine, Const):
                    return other if mine.value else mine
        if name == "where" and isinstance(args[0], Const):
            return args[1] if args[0].value else args[2]
        return None

    def arithmetic(self, expr: sympy.Expr, computed: dict[sympy.Symbol, Expr]) -> Expr:
        """An index expression as an i64 value, where some symbols stand for computed ones."""
        if not expr.free_symbols & computed.keys():
            return self.index(expr)
        if expr.is_Symbol:
            return computed[expr]
        parts = [self.arithmetic(a, computed) for a in expr.args]
        name = "add" if expr.is_Add else "mul" if expr.is_Mul else {FloorDiv: "floordiv", PythonMod: "mod"}[type(expr)]
        return functools.reduce(lambda a, b: self.op(name, a, b), parts)

    # -- substitution -----------------------------------------------------------------------------
    def at(
        self, root: Expr, values: dict[sympy.Symbol, sympy.Expr], reads: Callable[[Read], Expr | None] | None = None,
        computed: dict[sympy.Symbol, Expr] | None = None,
    ) -> Expr:
        """The expression with loop variables replaced, all at once.

        reads: what to put in place of a read (already replaced); computed: symbols among the new values that stand for computed indices.
        """
        done: dict[int, Expr] = {}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if id(expr) in done:
                continue
            if not ready:
                stack.append((expr, True))
                stack += [(a, False) for a in expr.args]
                continue
            done[id(expr)] = self._rebuilt(expr, [done[id(a)] for a in expr.args], values, reads, computed or {})
        return done[id(root)]

    def _rebuilt(self, expr: Expr, args: list[Expr], values: Any, reads: Any, computed: dict[sympy.Symbol, Expr]) -> Expr:
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, Index):
            return self.arithmetic(replaced(expr.expr, values), computed)
        if isinstance(expr, Read):
            renamed = {s: self.symbol_of(a) for (s, _), a in zip(expr.indirect, args, strict=True)}
            full = {**values, **renamed}
            index = [replaced(i, full) for i in expr.index]
            used = {s for i in index for s in i.free_symbols}
            pairs = {**dict(zip(renamed.values(), args, strict=True)), **{s: e for s, e in computed.items() if s in used}}
            new = self.read(expr.dtype, expr.buffer, index, tuple(pairs.items()))
            other = reads(new) if reads is not None else None
            return new if other is None else other
        if isinstance(expr, Select):
            return self.select(*args)
        assert isinstance(expr, Op)
        return self.cast(args[0], expr.dtype) if expr.name == "cast" else self.op(expr.name, *args, dtype=expr.dtype)


def _holds(outer: DType, inner: DType) -> bool:
    """Does every value of `inner` fit `outer` unchanged?"""
    small = (DType.f16, DType.bf16, DType.i16, DType.i8, DType.u8, DType.b1)
    return inner in {DType.f64: (DType.f32, DType.i32, *small), DType.f32: small}.get(outer, ())


def _converted(value: Any, dtype: DType) -> Any:
    if dtype is DType.b1:
        return bool(value)
    if dtype.is_float:
        return torch.tensor(value, dtype=dtype.torch).item()
    bits = dtype.itemsize * 8
    whole = int(value) & ((1 << bits) - 1)
    return whole - (1 << bits) if dtype is not DType.u8 and whole >> (bits - 1) else whole


def replaced(expr: sympy.Expr, values: dict[Any, Any]) -> sympy.Expr:
    if not values or not (expr.free_symbols & values.keys()):
        return expr
    if expr.is_Symbol:
        return values[expr]
    return simplified(expr.xreplace(values))


def floordiv(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return a if b == 1 else ZERO if b == 0 else FloorDiv(a, b)


def modulo(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return ZERO if b in (0, 1) else PythonMod(a, b)


def simplified(expr: sympy.Expr) -> sympy.Expr:
    """n * (f // n) + f % n is f."""
    expr = sympy.expand(expr)
    if not expr.has(PythonMod):
        return expr
    for mod in sorted(expr.atoms(PythonMod), key=str):
        f, n = mod.args
        low, high = expr.coeff(mod), expr.coeff(FloorDiv(f, n))
        if low != 0 and sympy.expand(high - low * n) == 0:
            return simplified(expr - low * mod - high * FloorDiv(f, n) + low * f)
    return expr
