"""The meaning of the loop IR, by torch operators on whole index grids: what printers and the scheduler are tested against.

In: a kernel and flat memory. Out: the memory after it. And a runner of whole lowered graphs.
"""

from __future__ import annotations

import builtins
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, PythonMod

from dynamo_nb.backends.triton_cpp.assemble import needed_after
from dynamo_nb.backends.triton_cpp.emit import Emitter
from dynamo_nb.backends.triton_cpp.graph import AtenCall, GraphLowering, ViewOf
from dynamo_nb.backends.triton_cpp.ir import Check, Const, DType, Expr, Index, Kernel, Load, Op, Reduce, Select, walk
from dynamo_nb.backends.triton_cpp.schedule import Scheduler

NAMES = {
    "neg": torch.neg, "abs": torch.abs, "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "mod": torch.remainder, "fmod": torch.fmod,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "min": torch.minimum, "max": torch.maximum,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "not": torch.bitwise_not, "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
}


class Points:
    """Evaluates expressions at every point of some loops; values broadcast against one dimension a loop."""

    def __init__(self, memory: dict[str, torch.Tensor], loops: Any, sizes: dict[Any, int], places: dict[str, Any]) -> None:
        self.memory, self.places = memory, places
        self.counts = [_number(n, sizes) for _, n in loops]
        self.values: dict[Any, Any] = dict(sizes)
        for k, (v, _) in enumerate(loops):
            self.values[v] = torch.arange(self.counts[k]).reshape([-1 if i == k else 1 for i in range(len(loops))])
        self.done: dict[int, torch.Tensor] = {}

    def index(self, expr: sympy.Expr) -> Any:
        return torch.as_tensor(_index(expr, self.values)).expand(self.counts)

    def value(self, root: Expr) -> torch.Tensor:
        for expr in walk(root):
            if id(expr) not in self.done:
                self.done[id(expr)] = self._one(expr).expand(self.counts)
        return self.done[id(root)]

    def _one(self, expr: Expr) -> torch.Tensor:
        args = [self.done[id(a)] for a in expr.args]
        if isinstance(expr, Const):
            return torch.tensor(expr.value, dtype=expr.dtype.torch)
        if isinstance(expr, Index):
            return self.index(expr.expr)
        if isinstance(expr, Load):
            self.values.update({s: self.done[id(e)] for s, e in expr.indirect})
            memory = self.memory[expr.buffer]
            at = self.index(expr.offset)
            if memory.dim() > 1:        # local memory: one row an outer point
                return memory[tuple(self.places[expr.buffer](at.clamp(0, max(memory.shape[1] - 1, 0))))]     # a side not chosen may be out of bounds
            return memory[at.clamp(0, max(memory.numel() - 1, 0))] if memory.numel() else torch.zeros(self.counts, dtype=memory.dtype)
        if isinstance(expr, Select):
            return torch.where(args[0], args[1], args[2])
        assert isinstance(expr, Op)
        if expr.name == "cast":
            return args[0].to(expr.dtype.torch)
        fn: Any = NAMES.get(expr.name) or getattr(torch, expr.name, None) or getattr(torch.special, expr.name)
        return fn(*args)


def _index(expr: sympy.Expr, values: dict[Any, Any]) -> Any:
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return values[expr]
    args = [_index(a, values) for a in expr.args]
    if isinstance(expr, FloorDiv):
        return args[0] // args[1]
    if isinstance(expr, PythonMod):
        return args[0] % args[1]
    out = args[0]
    for a in args[1:]:
        out = out + a if expr.is_Add else out * a if expr.is_Mul else out ** a
    return out


def _number(expr: Any, sizes: dict[Any, int]) -> int:
    return int(sympy.sympify(expr).subs(sizes))


def run_kernel(kernel: Kernel, memory: dict[str, torch.Tensor], sizes: dict[Any, int]) -> None:
    """memory: flat tensors by buffer name; changed in place."""
    outer = [_number(n, sizes) for _, n in kernel.outer]
    points = torch.arange(int(torch.tensor(outer).prod()) if outer else 1)
    local: dict[str, torch.Tensor] = {}
    for name in kernel.local:
        b = kernel.buffers[name]
        count = 1
        for n in b.sizes:
            count *= _number(n, sizes)
        local[name] = torch.zeros((len(points), count), dtype=b.dtype.torch)

    def row_of(loops: int) -> torch.Tensor:
        return points.reshape([*outer, *[1] * loops])

    for phase in kernel.phases:
        rows = row_of(len(phase.loops))
        places = {name: (lambda at, rows=rows: (rows.expand(at.shape), at)) for name in kernel.local}
        at = Points({**memory, **local}, (*kernel.outer, *phase.loops), sizes, places)
        for s in phase.statements:
            value = at.value(s.value)
            if isinstance(s, Check):
                inside = (value >= 0) & (value < _number(s.size, sizes))
                if not inside.all():
                    raise getattr(builtins, s.error[0])(s.error[1].format(index=int(value[~inside][0]), size=_number(s.size, sizes)))
            elif isinstance(s, Reduce):
                _store_fold(s, value, memory, local, kernel, sizes, rows=row_of(0))
            elif s.buffer in local:
                local[s.buffer][rows.expand(value.shape), at.index(s.offset)] = value
            else:
                memory[s.buffer][at.index(s.offset)] = value


def _store_fold(s: Reduce, value: torch.Tensor, memory: Any, local: Any, kernel: Kernel, sizes: Any, rows: torch.Tensor) -> None:
    target = kernel.buffers[s.buffer].dtype
    flat = value.reshape([*value.shape[:len(kernel.outer)], -1])
    wide = target if not target.is_float or target is DType.f64 else DType.f64
    if s.kind in ("argmax", "argmin"):
        result = getattr(torch, s.kind)(flat, -1)
    elif s.kind in ("max", "min"):
        result = getattr(torch, f"a{s.kind}")(flat, -1)
    elif s.kind in ("any", "all"):
        result = getattr(torch, s.kind)(flat.bool(), -1)
    else:
        result = getattr(torch, s.kind)(flat.to(wide.torch), -1)
    result = result.to(target.torch)
    if s.buffer in local:
        local[s.buffer][rows, 0] = result
    else:
        at = Points(memory, kernel.outer, sizes, {})
        memory[s.buffer][at.index(s.offset)] = result


def run_graph(gm: torch.fx.GraphModule, args: list[Any]) -> list[Any]:
    """A lowered and scheduled graph on real tensors, its kernels by their meaning."""
    lowered = GraphLowering(gm).run()
    schedule = Scheduler(lowered).run()
    sizes = {e: int(a) for e, a in zip(lowered.inputs, args, strict=True) if isinstance(e, sympy.Symbol)}
    tensors = {b.name: a for b, a in zip(lowered.inputs, args, strict=True) if isinstance(a, torch.Tensor)}
    tensors.update({b.name: value for b, value in lowered.constants})
    for i, step in enumerate(schedule.steps):
        if isinstance(step, ViewOf):
            base = tensors[step.base.name]
            shape, strides = ([_number(n, sizes) for n in part] for part in (step.buffer.sizes, step.buffer.strides))
            tensors[step.buffer.name] = base.as_strided(shape, strides, base.storage_offset() + _number(step.offset, sizes))
        elif isinstance(step, AtenCall):
            _call(step, tensors, sizes)
        else:
            kernel = Emitter(lowered.exprs, lowered.buffers, step, f"k{i}", needed_after(schedule, i)).kernel()
            for name in kernel.writes:
                b = lowered.buffers[name]
                tensors.setdefault(name, torch.empty_strided(*[[_number(n, sizes) for n in part] for part in (b.sizes, b.strides)], dtype=b.dtype.torch))
            memory = {name: _flat(tensors[name]) for name in (*kernel.reads, *kernel.writes)}
            run_kernel(kernel, memory, sizes)
    return [tensors[o.name] if hasattr(o, "name") and o.name in tensors else _number(o, sizes) if isinstance(o, sympy.Expr) else o for o in lowered.outputs]


def _flat(t: torch.Tensor) -> torch.Tensor:
    extent = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1 if t.numel() else 0
    return t.as_strided([extent], [1], t.storage_offset())


def _call(step: AtenCall, tensors: dict[str, Any], sizes: Any) -> None:
    def real(a: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return [real(x) for x in a]
        if isinstance(a, sympy.Expr):
            return _number(a, sizes)
        return tensors[a.name] if hasattr(a, "strides") else a

    result = step.target(*map(real, step.args), **{k: real(v) for k, v in step.kwargs.items()})

    def keep(out: Any, value: Any) -> None:
        if isinstance(out, tuple):
            for o, v in zip(out, value, strict=True):
                keep(o, v)
        elif out is not None and hasattr(out, "strides"):
            strides = tuple(_number(n, sizes) for n in out.strides)
            agree = all(a == b or n == 1 for a, b, n in zip(value.stride(), strides, value.shape, strict=True))
            assert agree, f"{step.target}: {value.stride()} is not {strides}"
            tensors[out.name] = value

    keep(step.outs, result)
