"""Element-wise local buffers, for a printer that has no memory for them: kernels in, equal kernels without such locals out.

A phase that reads what an earlier phase stored per inner point gets the stored expression instead, at its own loop variables.
Locals with one value an outer point (a reduction's result, a store of a phase without loops) stay.
"""

from __future__ import annotations

import dataclasses

import sympy

from dynamo_nb.backends.triton_cpp import ir
from dynamo_nb.backends.triton_cpp.exprs import floordiv, modulo
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint, points

Mapping = dict[sympy.Symbol, sympy.Expr]


@dataclasses.dataclass(frozen=True)
class _Stored:
    """Where an element-wise local got its values."""

    phase: int
    loops: ir.Loops
    offset: sympy.Expr
    value: ir.Expr


def elementwise_locals(kernel: ir.Kernel) -> set[str]:
    return {s.buffer for p in kernel.phases if p.loops for s in p.statements if isinstance(s, ir.Store) and s.buffer in kernel.local}


def inline_locals(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with element-wise locals recomputed where they are read. CannotPrint where memory is needed."""
    gone = elementwise_locals(kernel)
    if not gone:
        return kernel
    stored: dict[str, _Stored] = {}
    phases: list[ir.Phase] = []
    for number, phase in enumerate(kernel.phases):
        inliner = _Inliner(kernel, gone, stored, number)
        statements = tuple(dataclasses.replace(s, value=ir.rewrite(s.value, inliner.change, inliner.memo)) for s in phase.statements)
        for s in statements:
            if s.buffer in gone:
                if s.buffer in stored or isinstance(s, ir.Reduce):
                    raise CannotPrint(f"local buffer {s.buffer} of {kernel.name} is written twice; give each write a local of its own")
                stored[s.buffer] = _Stored(number, phase.loops, s.offset, _converted(s.value, kernel.buffers[s.buffer].dtype))
        phases.append(ir.Phase(phase.loops, tuple(s for s in statements if s.buffer not in gone)))
    kept = tuple(name for name in kernel.local if name not in gone)
    buffers = {name: b for name, b in kernel.buffers.items() if name not in gone}
    return dataclasses.replace(kernel, phases=tuple(p for p in phases if p.statements), local=kept, buffers=buffers)


def _converted(value: ir.Expr, dtype: ir.DType) -> ir.Expr:
    return value if value.dtype is dtype else ir.Op(dtype, "cast", (value,))


class _Inliner:
    """Replaces loads of vanished locals in the statements of one phase."""

    def __init__(self, kernel: ir.Kernel, gone: set[str], stored: dict[str, _Stored], number: int) -> None:
        self.kernel, self.gone, self.stored, self.number = kernel, gone, stored, number
        self.memo: dict[int, ir.Expr] = {}
        self.done: dict[tuple[str, sympy.Expr], ir.Expr] = {}

    def change(self, expr: ir.Expr) -> ir.Expr | None:
        if not isinstance(expr, ir.Load) or expr.buffer not in self.gone:
            return None
        key = (expr.buffer, expr.offset)
        if key not in self.done:
            if expr.indirect or expr.buffer not in self.stored:
                why = "through computed indices" if expr.indirect else "before it is written"
                raise CannotPrint(f"local buffer {expr.buffer} of {self.kernel.name} is read {why}; make it a global buffer")
            source = self.stored[expr.buffer]
            value = ir.substitute(source.value, self.positions(expr, source))
            self.check_unchanged(expr.buffer, source, value)
            self.done[key] = value
        return self.done[key]

    def positions(self, load: ir.Load, source: _Stored) -> Mapping:
        """The storing phase's loop variables for which its offset is the load's."""
        loops = self.kernel.phases[self.number].loops
        if [n for _, n in loops] == [n for _, n in source.loops]:
            same: Mapping = {v: w for (v, _), (w, _) in zip(source.loops, loops, strict=True)}
            if sympy.expand(source.offset.subs(same, simultaneous=True) - load.offset) == 0:
                return same
        strides = [points(source.loops[i + 1:]) for i in range(len(source.loops))]
        if sympy.expand(source.offset - sympy.Add(*(v * s for (v, _), s in zip(source.loops, strides, strict=True)))) != 0:
            raise CannotPrint(f"local buffer {load.buffer} of {self.kernel.name} isn't stored in the order of its loops; make it a global buffer")
        return {v: modulo(floordiv(load.offset, s), n) for (v, n), s in zip(source.loops, strides, strict=True)}

    def check_unchanged(self, local: str, source: _Stored, value: ir.Expr) -> None:
        """Recomputing later must read what the first computation read."""
        offsets = {(e.buffer, e.offset) for e in ir.loads(value) if not e.indirect}
        read = {e.buffer for e in ir.loads(value)}
        for number in range(source.phase, self.number + 1):
            for s in self.kernel.phases[number].statements:
                if s.buffer not in read or (number == self.number and all(o == s.offset for b, o in offsets if b == s.buffer)
                                            and not any(e.indirect for e in ir.loads(value) if e.buffer == s.buffer)):
                    continue
                raise CannotPrint(f"local buffer {local} of {self.kernel.name} would be recomputed from {s.buffer}, which the kernel overwrites "
                                  "in between; put that write into a kernel of its own")
