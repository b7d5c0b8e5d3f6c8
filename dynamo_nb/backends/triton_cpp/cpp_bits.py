"""Elements of half types that are only moved: as integers, so that nothing is converted on the way and NaNs keep their bits.

In: a kernel. Out: the same with i16 as the type of such values; a store of an i16 into memory of a half type stores its bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .ir import Const, DType, Expr, Kernel, Load, Op, Phase, Select, Statement, Store, walk

HALF = (DType.f16, DType.bf16)


def moved_as_bits(kernel: Kernel) -> Kernel:
    if not any(b.dtype in HALF for b in kernel.buffers.values()):
        return kernel
    memo: dict[int, Expr | None] = {}
    phases = tuple(Phase(p.loops, tuple(_statement(kernel, s, memo) for s in p.statements)) for p in kernel.phases)
    return dataclasses.replace(kernel, phases=phases)


def _statement(kernel: Kernel, s: Statement, memo: dict[int, Expr | None]) -> Statement:
    if not isinstance(s, Store) or s.value.dtype not in HALF or s.value.dtype is not kernel.buffers[s.buffer].dtype or s.buffer in kernel.local:
        return s
    for expr in walk(s.value, operands=_sides):
        if id(expr) not in memo:
            memo[id(expr)] = _bits(expr, memo, kernel.local)
    value = memo[id(s.value)]
    return s if value is None or isinstance(value, Const) else dataclasses.replace(s, value=value)


def _sides(expr: Expr) -> tuple[Expr, ...]:
    """Those of its operands of which it may be one."""
    if isinstance(expr, Select):
        return expr.yes, expr.no
    return expr.operands[1:] if isinstance(expr, Op) and expr.name == "where" else ()


def _bits(expr: Expr, memo: dict[int, Expr | None], local: tuple[str, ...]) -> Expr | None:
    """None where something is computed."""
    if isinstance(expr, Load):
        return None if expr.buffer in local else Load(DType.i16, expr.buffer, expr.offset, expr.indirect)
    if isinstance(expr, Const):
        return Const(DType.i16, int(torch.tensor(expr.value, dtype=expr.dtype.torch).view(torch.int16)))
    sides: list[Any] = [memo[id(e)] for e in _sides(expr)]
    if not sides or any(side is None for side in sides):
        return None
    return Select(DType.i16, expr.cond, *sides) if isinstance(expr, Select) else Op(DType.i16, "where", (expr.args[0], *sides))
