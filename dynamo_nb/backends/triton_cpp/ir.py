"""The loop IR: what a kernel computes, as typed expressions of loop variables (design 7).

A graph becomes statements over flat buffers. A `Store` writes one element of a buffer for every point of a box
of loop variables; a `Reduce` folds the points of a second, inner box into each element. The scheduler groups
them into kernels of phases.
Expressions are immutable and shared; where the same object stands twice it is computed once.

Loop variables and sizes are sympy integer symbols: sizes (`s0`, …) are arguments of the kernel, loop
variables run from 0 to their size. Offsets count elements, not bytes. Printers (C++, Triton) take
`Kernel`s; `str()` of anything here is the readable form that reports show.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch


class DType(enum.Enum):
    """Element types. Arithmetic on f16 and bf16 is done in f32 and rounded after every operation, as eager does."""

    f64 = "f64"
    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    i64 = "i64"
    i32 = "i32"
    i16 = "i16"
    i8 = "i8"
    u8 = "u8"
    b1 = "b1"

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def is_int(self) -> bool:
        return not self.is_float and self is not DType.b1

    @property
    def itemsize(self) -> int:
        return {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b1": 1}[self.value]

    @staticmethod
    def of(dtype: torch.dtype) -> DType | None:
        """None for types that no kernel handles (complex, quantized, float8, unsigned 16 to 64 bits)."""
        return FROM_TORCH.get(dtype)

    @property
    def torch(self) -> torch.dtype:
        return TO_TORCH[self]


FLOATS = frozenset({DType.f64, DType.f32, DType.f16, DType.bf16})
FROM_TORCH = {
    torch.float64: DType.f64, torch.float32: DType.f32, torch.float16: DType.f16, torch.bfloat16: DType.bf16, torch.int64: DType.i64,
    torch.int32: DType.i32, torch.int16: DType.i16, torch.int8: DType.i8, torch.uint8: DType.u8, torch.bool: DType.b1,
}
TO_TORCH = {ours: theirs for theirs, ours in FROM_TORCH.items()}


# -- expressions ------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """A scalar of every point of the loops. Equality and hash go by identity."""

    dtype: DType

    @property
    def args(self) -> tuple[Expr, ...]:
        return ()

    def __repr__(self) -> str:
        return text(self)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Const(Expr):
    """value: a Python bool, int or float (inf and nan too)."""

    value: Any


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Index(Expr):
    """An index expression as an i64 value."""

    expr: sympy.Expr


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Load(Expr):
    """buffer[offset]. indirect: symbols of `offset` that stand for i64 expressions, in-bounds already."""

    buffer: str
    offset: sympy.Expr
    indirect: tuple[tuple[sympy.Symbol, Expr], ...] = ()

    @property
    def args(self) -> tuple[Expr, ...]:
        return tuple(e for _, e in self.indirect)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Op(Expr):
    """An operation of `OPERATIONS` on operands of its operand types; `dtype` is the result's."""

    name: str
    operands: tuple[Expr, ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.operands


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Select(Expr):
    """`yes` where cond, else `no`. Only the chosen side may be evaluated: the other may read out of bounds."""

    cond: Expr
    yes: Expr
    no: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.cond, self.yes, self.no)


# What each operation means; operands and result have one type unless said. Floats follow torch's eager
# operator: NaN, infinities, signed zero and denormals included.
OPERATIONS: dict[str, str] = {
    "add": "a + b (integers wrap)", "sub": "a - b", "mul": "a * b", "div": "a / b, floats", "neg": "-a", "abs": "|a|",
    "floordiv": "floor(a / b), torch.div(rounding_mode='floor')", "truncdiv": "integers: C's a / b; floats: trunc(a / b)",
    "mod": "torch.remainder: sign of b", "fmod": "torch.fmod: sign of a", "pow": "floats: pow(a, b); integers: b >= 0",
    "min": "torch.minimum: NaN if either is, a where they are equal", "max": "torch.maximum: likewise", "fmin": "torch.fmin: the other if one is NaN",
    "fmax": "torch.fmax", "sign": "-1, 0, 1 (NaN stays 0 as torch.sign)", "copysign": "torch.copysign, floats", "hypot": "", "atan2": "",
    "exp": "", "exp2": "", "expm1": "", "log": "", "log2": "", "log10": "", "log1p": "", "sqrt": "", "rsqrt": "1 / sqrt(a)", "sin": "",
    "cos": "", "tan": "", "asin": "", "acos": "", "atan": "", "sinh": "", "cosh": "", "tanh": "", "asinh": "", "acosh": "", "atanh": "",
    "erf": "", "erfc": "", "lgamma": "", "sigmoid": "1 / (1 + exp(-a))", "floor": "", "ceil": "", "round": "half to even", "trunc": "",
    "isnan": "-> b1", "isinf": "-> b1", "signbit": "-> b1",
    "lt": "-> b1", "le": "-> b1", "gt": "-> b1", "ge": "-> b1", "eq": "-> b1", "ne": "-> b1 (true for NaN)",
    "and": "bitwise; logical for b1", "or": "", "xor": "", "not": "bitwise; logical for b1", "shl": "integers", "shr": "arithmetic for signed",
    "where": "operands (b1, a, b); both sides may be evaluated", "cast": "one operand of any type; C's conversion, b1: != 0",
}

LONG = 50       # operands and operations up to which a text is written out
REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")


# -- buffers, statements, kernels ----------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Buffer:
    """Memory of one tensor, from its data_ptr() on. sizes, strides: sympy integers in elements.

    kind: input, made (allocated for the graph), aten (the result of a fallback) or local (inside one kernel).
    """

    name: str
    dtype: DType
    sizes: tuple[sympy.Expr, ...]
    strides: tuple[sympy.Expr, ...]
    kind: str
    device: torch.device

    @property
    def strided(self) -> bool:
        return bool(self.strides) or not self.sizes

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.value}[{', '.join(map(str, self.sizes))}] strides [{', '.join(map(str, self.strides))}] {self.kind}"


Loops = tuple[tuple[sympy.Symbol, sympy.Expr], ...]     # (variable, size), outermost first


@dataclasses.dataclass(frozen=True, eq=False)
class Store:
    """buffer[offset] = value, for every point of the loops it stands in."""

    buffer: str
    loops: Loops
    offset: sympy.Expr
    value: Expr
    origins: tuple[str, ...] = ()      # names of the FX nodes it serves


@dataclasses.dataclass(frozen=True, eq=False)
class Reduce:
    """buffer[offset] = `kind`'s fold of value over the inner loops, for every point of the loops.

    The result has the buffer's dtype, the fold is done in it (f16 and bf16: in f32, rounded once). sum and prod of
    integers wrap. max and min give NaN if any value is. argmax and argmin give the flat position in the inner box as
    i64: the first extreme, a NaN counting as extreme. A fold over nothing gives the identity (max, min: never asked for).
    """

    buffer: str
    loops: Loops
    inner: Loops
    offset: sympy.Expr
    kind: str
    value: Expr
    origins: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Check:
    """The i64 value must lie in [0, size) at every point of the loops; else the kernel's caller raises, once the kernel is done.

    Nothing is written: `buffer` only names the check. Whoever reads at the value clamps it himself. error: the exception's
    type and its text, with {index} for a bad value and {size}; wraps: the value is a negative index plus the size where it was negative.
    """

    buffer: str
    loops: Loops
    value: Expr
    size: sympy.Expr
    error: tuple[str, str]
    wraps: bool
    origins: tuple[str, ...] = ()
    offset: sympy.Expr = sympy.Integer(0)


Statement = Store | Reduce | Check


@dataclasses.dataclass(frozen=True)
class Phase:
    """Statements of one loop nest inside a kernel's outer loops, in order.

    For an outer point, `loops` are run once; at each point all values are computed (an Expr object that stands twice:
    once), stores happen, reductions accumulate; their results are stored after the loops. No statement of a phase reads
    what another statement of the same phase writes. Every Store and Check has loops outer + loops; every Reduce has loops
    outer and inner loops. Without loops the phase runs once per outer point.
    """

    loops: Loops
    statements: tuple[Statement, ...]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Phases that share the outer loops and run in order at each outer point; outer points are independent.

    A phase may read what earlier phases wrote at the same outer point. `local` buffers live for one outer point only:
    their sizes and the offsets into them use the phases' own loop variables, not the outer ones (one value: offset 0).
    reads, writes: names of global buffers, the arguments in this order, a buffer in one of the two only (read and
    written: in writes); sizes: symbols passed as i64.
    """

    name: str
    outer: Loops
    phases: tuple[Phase, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    sizes: tuple[sympy.Symbol, ...]
    buffers: dict[str, Buffer]          # every buffer named in it, local ones too
    local: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_kernel_lines(self))

    def roots(self) -> list[Expr]:
        return [s.value for phase in self.phases for s in phase.statements]

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(s for phase in self.phases for s in phase.statements if isinstance(s, Check))


# -- walking ------------------------------------------------------------------------------------------
def walk(*roots: Expr, operands: Callable[[Expr], tuple[Expr, ...]] = lambda expr: expr.args) -> Iterator[Expr]:
    """Every expression below, operands first, each once; operands: which of an expression's are followed."""
    seen: set[int] = set()
    todo: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while todo:
        expr, ready = todo.pop()
        if ready:
            yield expr
        elif id(expr) not in seen:
            seen.add(id(expr))
            todo.append((expr, True))
            todo += [(a, False) for a in reversed(operands(expr))]


def rewrite(root: Expr, change: Callable[[Expr], Expr | None], memo: dict[int, Expr] | None = None) -> Expr:
    """The expression with every part for which `change` gives one replaced; operands first, sharing kept."""
    done: dict[int, Expr] = {} if memo is None else memo
    for expr in walk(root):
        if id(expr) in done:
            continue
        new = _with_args(expr, tuple(done[id(a)] for a in expr.args))
        changed = change(new)
        done[id(expr)] = new if changed is None else changed
    return done[id(root)]


def _with_args(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    if all(a is b for a, b in zip(args, expr.args, strict=True)):
        return expr
    if isinstance(expr, Op):
        return Op(expr.dtype, expr.name, args)
    if isinstance(expr, Select):
        return Select(expr.dtype, *args)
    pairs: Any = expr       # a Load, or what becomes one
    return dataclasses.replace(pairs, indirect=tuple((s, a) for (s, _), a in zip(pairs.indirect, args, strict=True)))


def substitute(root: Expr, values: dict[sympy.Symbol, sympy.Expr]) -> Expr:
    """The expression at other indices: loop variables replaced all at once."""
    if not values:
        return root

    def change(expr: Expr) -> Expr | None:
        if isinstance(expr, Load):
            new = expr.offset.subs(values, simultaneous=True)
            return None if new == expr.offset else Load(expr.dtype, expr.buffer, new, expr.indirect)
        if isinstance(expr, Index):
            new = expr.expr.subs(values, simultaneous=True)
            return None if new == expr.expr else Index(expr.dtype, new)
        return None

    return rewrite(root, change)


def loads(*roots: Expr) -> list[Load]:
    return [e for e in walk(*roots) if isinstance(e, Load)]


# -- text ---------------------------------------------------------------------------------------------
def text(root: Expr) -> str:
    """A long one names the parts that stand in it several times: written out, they could double at every step."""
    order = list(walk(root))
    uses = collections.Counter(id(a) for e in order for a in e.args)
    parts: list[str] = []
    done: dict[int, str] = {}
    whole: dict[int, int] = {}      # how many it is, written out
    for expr in order:
        whole[id(expr)] = 1 + sum(whole[id(a)] for a in expr.args)
    for expr in order:
        done[id(expr)] = _text(expr, done)
        if whole[id(root)] > LONG and uses[id(expr)] > 1 and expr.args:
            parts.append(f"t{len(parts)} = {done[id(expr)]}")
            done[id(expr)] = f"t{len(parts) - 1}"
    return done[id(root)] + (f" where {', '.join(parts)}" if parts else "")


def _text(expr: Expr, texts: dict[int, str]) -> str:
    if isinstance(expr, Const):
        return f"{expr.value}:{expr.dtype.value}"
    if isinstance(expr, Index):
        return f"index({expr.expr})"
    if isinstance(expr, Select):
        return f"select({', '.join(texts[id(a)] for a in expr.args)})"
    if isinstance(expr, Op):
        name = f"cast_{expr.dtype.value}" if expr.name == "cast" else expr.name
        return f"{name}({', '.join(texts[id(a)] for a in expr.operands)})"
    read: Any = expr       # a Load, or what becomes one
    where = "".join(f", {s} = {texts[id(e)]}" for s, e in read.indirect)
    return f"{read.buffer}[{read.offset if isinstance(expr, Load) else read.index}{where}]"


def _loops(loops: Loops) -> str:
    return ", ".join(f"{v} < {n}" for v, n in loops)


def statement_text(s: Statement) -> str:
    if isinstance(s, Reduce):
        return f"{s.buffer}[{s.offset}] = {s.kind} over ({_loops(s.inner)}) of {text(s.value)}"
    if isinstance(s, Check):
        return f"check {s.buffer}: 0 <= {text(s.value)} < {s.size}"
    return f"{s.buffer}[{s.offset}] = {text(s.value)}"


def _kernel_lines(kernel: Kernel) -> list[str]:
    sizes = f"; {', '.join(map(str, kernel.sizes))}" if kernel.sizes else ""
    lines = [f"kernel {kernel.name}({', '.join(kernel.reads)} -> {', '.join(kernel.writes)}{sizes})"]
    lines += [f"  local {kernel.buffers[name]}" for name in kernel.local]
    lines.append(f"  for {_loops(kernel.outer)}:" if kernel.outer else "  once:")
    for phase in kernel.phases:
        lines.append(f"    for {_loops(phase.loops)}:" if phase.loops else "    at the point:")
        lines += [f"      {statement_text(s)}" for s in phase.statements]
    return lines
