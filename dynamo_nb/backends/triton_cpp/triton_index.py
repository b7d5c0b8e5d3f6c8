"""Index expressions as text: sympy in, Triton or Python source out; and bounds that choose 32 or 64 bits.

Triton's `//` and `%` truncate as C's do, so they are used only where both operands are known not to be negative;
elsewhere `device.index_floordiv` and `device.index_mod` round down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import sympy

from dynamo_nb.backends.triton_cpp import ir


class CannotPrint(Exception):
    """A kernel this printer has no text for. The message names the cause and what to do instead."""


FLOOR_DIVISIONS = ("FloorDiv", "CleanDiv", "IntTrueDiv")
MODULI = ("Mod", "PythonMod")


@lru_cache(maxsize=4096)
def is_nonnegative(expr: sympy.Expr) -> bool:
    """Whether it cannot be negative, given that loop variables, sizes and in-bounds indices are not."""
    plain = expr.xreplace({s: sympy.Dummy(str(s), integer=True, nonnegative=True) for s in expr.free_symbols})
    return bool(plain.is_nonnegative) or _nonnegative_parts(expr)


def _nonnegative_parts(expr: sympy.Expr) -> bool:
    kind = type(expr).__name__
    if kind in FLOOR_DIVISIONS or kind in MODULI or kind in ("ModularIndexing", "floor"):
        return all(is_nonnegative(a) for a in expr.args)
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        return all(is_nonnegative(a) for a in expr.args)
    return isinstance(expr, sympy.Symbol)


def index_text(expr: sympy.Expr, names: Mapping[sympy.Symbol, str], python: bool = False) -> str:
    """The expression with its symbols named as `names` says; `python`: for Python ints instead of Triton tensors."""
    return _Printer(names, python).text(sympy.sympify(expr))


class _Printer:
    def __init__(self, names: Mapping[sympy.Symbol, str], python: bool) -> None:
        self.names, self.python = names, python

    def text(self, expr: sympy.Expr) -> str:
        if isinstance(expr, sympy.Integer):
            return str(int(expr)) if expr >= 0 else f"({int(expr)})"
        if isinstance(expr, sympy.Symbol):
            if expr not in self.names:
                raise CannotPrint(f"the index symbol {expr} is neither a loop variable nor a size of the kernel; list it in Kernel.sizes")
            return self.names[expr]
        kind = type(expr).__name__
        printer: Callable[[sympy.Expr], str] | None = getattr(self, f"text_{kind}", None)
        if kind in FLOOR_DIVISIONS:
            return self.divide(*expr.args)
        if kind in MODULI:
            return self.modulo(*expr.args)
        if printer is None:
            raise CannotPrint(f"no text for {kind} in the index expression {expr}; lower it to +, *, FloorDiv and Mod")
        return printer(expr)

    def text_Add(self, expr: sympy.Expr) -> str:
        return "(" + " + ".join(self.text(a) for a in expr.args) + ")"

    def text_Mul(self, expr: sympy.Expr) -> str:
        below, above = sympy.fraction(expr)[::-1]
        if below != 1:
            raise CannotPrint(f"the index {expr} isn't a whole number; use FloorDiv for division")
        return "(" + " * ".join(self.text(a) for a in above.args) + ")" if isinstance(above, sympy.Mul) else self.text(above)

    def text_Pow(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if not (isinstance(exponent, sympy.Integer) and exponent > 0):
            raise CannotPrint(f"the power {expr} in an index; only positive constant exponents have a text")
        return "(" + " * ".join([self.text(base)] * int(exponent)) + ")"

    def text_floor(self, expr: sympy.Expr) -> str:
        above, below = sympy.fraction(sympy.together(expr.args[0]))
        return self.divide(above, below)

    def text_ModularIndexing(self, expr: sympy.Expr) -> str:
        base, divisor, modulus = expr.args
        inner = f"({self.text(base)} // {self.text(divisor)})" if self.plain(base, divisor) else self.divide(base, divisor)
        if self.plain(base, divisor, modulus):
            return f"({inner} % {self.text(modulus)})"
        return f"device.index_mod({inner}, {self.text(modulus)})"

    def plain(self, *operands: sympy.Expr) -> bool:
        return self.python or all(is_nonnegative(o) for o in operands)

    def divide(self, a: sympy.Expr, b: sympy.Expr) -> str:
        return f"({self.text(a)} // {self.text(b)})" if self.plain(a, b) else f"device.index_floordiv({self.text(a)}, {self.text(b)})"

    def modulo(self, a: sympy.Expr, b: sympy.Expr) -> str:
        return f"({self.text(a)} % {self.text(b)})" if self.plain(a, b) else f"device.index_mod({self.text(a)}, {self.text(b)})"

    def text_Max(self, expr: sympy.Expr) -> str:
        return self.fold("max" if self.python else "tl.maximum", expr)

    def text_Min(self, expr: sympy.Expr) -> str:
        return self.fold("min" if self.python else "tl.minimum", expr)

    def fold(self, name: str, expr: sympy.Expr) -> str:
        whole = self.text(expr.args[0])
        for a in expr.args[1:]:
            whole = f"{name}({whole}, {self.text(a)})"
        return whole


# -- how large indices get ------------------------------------------------------------------------------
def magnitude(expr: sympy.Expr, limits: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    """A bound of the absolute value of the expression and of every part of it; limits: of its symbols."""
    if isinstance(expr, sympy.Symbol):
        return limits.get(expr, expr)
    if isinstance(expr, sympy.Rational):
        return sympy.Integer(abs(expr.p))
    parts = [magnitude(a, limits) for a in expr.args]
    if isinstance(expr, sympy.Mul):
        return sympy.Mul(*parts)
    if isinstance(expr, sympy.Pow):
        return sympy.Pow(parts[0], expr.args[1])
    return sympy.Add(*parts)


def index_bound(kernel: ir.Kernel) -> sympy.Expr:
    """A bound of every number that offsets and loop counters of the kernel pass through, in terms of its sizes."""
    total = sympy.Integer(1)
    for phase in kernel.phases:
        limits = {v: n + 1 for v, n in kernel.outer + phase.loops}
        total += points(kernel.outer) + points(phase.loops) + 1
        for statement in phase.statements:
            total += magnitude(statement.offset, limits)
            for load in ir.loads(statement.value):
                total += _load_bound(kernel, load, limits)
    return total


def _load_bound(kernel: ir.Kernel, load: ir.Load, limits: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    # Indirect indices are in bounds: what they add to an offset stays inside the buffer.
    direct = magnitude(load.offset, {**limits, **{s: sympy.Integer(0) for s, _ in load.indirect}})
    if not load.indirect:
        return direct
    buffer = kernel.buffers[load.buffer]
    return direct + sympy.Add(*(n * (stride + 1) for n, stride in zip(buffer.sizes, buffer.strides, strict=True)))


def points(loops: ir.Loops) -> sympy.Expr:
    return sympy.Mul(*(n for _, n in loops))


def python_function(expr: sympy.Expr, symbols: tuple[sympy.Symbol, ...]) -> Callable[..., int]:
    """The expression as a function of the symbols' values, in their order."""
    names = {s: f"v{i}" for i, s in enumerate(symbols)}
    return eval(f"lambda {', '.join(names.values())}: {index_text(expr, names, python=True)}", {"max": max, "min": min})
