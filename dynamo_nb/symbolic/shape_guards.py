"""From what ShapeEnv assumed to Python expressions over the inputs' sizes.

In: the `Shapes` of a finished trace. Out: texts such as `L['x'].size()[0] <= 100`, which the guard
layer compiles to native code. Every symbol is written as the first source it can be read from.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from ..core.source import Source, TensorPropertySource

if TYPE_CHECKING:
    from .shapes import Shapes


MAX = repr(sys.float_info.max)


def printer(shapes: Shapes) -> Any:
    from torch.utils._sympy.printers import PythonPrinter

    class SourcePrinter(PythonPrinter):
        def _print_Symbol(self, expr: Any) -> str:
            entry = shapes.symbol_sources.get(expr)
            return str(expr) if entry is None else entry[1].name

        def _print_ToFloat(self, expr: Any) -> str:
            return f"float({self._print(expr.args[0])})"

        def _print_Float(self, expr: Any) -> str:
            return repr(float(expr))

    return SourcePrinter()


def _known(shapes: Shapes, expr: Any) -> bool:
    return all(s in shapes.symbol_sources for s in expr.free_symbols)


def _properties(fake: Any, source: Source) -> list[tuple[Source, Any]]:
    if not isinstance(fake, torch.Tensor):
        return [(source, fake)]
    if fake.layout is not torch.strided:
        return [(TensorPropertySource(source, "size", i), s) for i, s in enumerate(fake.size())]
    out = [(TensorPropertySource(source, "size", i), s) for i, s in enumerate(fake.size())]
    out += [(TensorPropertySource(source, "stride", i), s) for i, s in enumerate(fake.stride())]
    return [*out, (TensorPropertySource(source, "storage_offset", -1), fake.storage_offset())]


def expressions(shapes: Shapes) -> list[tuple[str, tuple[tuple[str, Source], ...]]]:
    """(expression, the (name, source) pairs it reads)."""
    env = shapes.shape_env
    text = printer(shapes).doprint
    out: dict[str, None] = {}
    used: set[Any] = set()
    numbers = [(number, source, None) for source, number in shapes.computed.items()]
    for fake, source, _ in [*shapes.tracked, *numbers]:
        for place, value in _properties(fake, source):
            if not isinstance(value, (torch.SymInt, torch.SymFloat)):
                continue
            symbol = value.node._expr
            expr = env.replace(symbol)
            used |= symbol.free_symbols | expr.free_symbols
            own = shapes.symbol_sources.get(expr)
            if own is not None and own[1] == place:
                continue
            if _known(shapes, expr):
                out[f"{place.name} == {text(expr)}"] = None
    for guard in env.guards:
        expr = env.simplify(guard.expr)
        if expr in (True, False) or not _known(shapes, expr):
            continue
        out[text(expr)] = None
    out.update(dict.fromkeys(_ranges(shapes, used)))
    for fake, source, _ in [*shapes.tracked, *numbers]:
        if isinstance(fake, torch.SymFloat):      # the algebra knows no signed zero, infinity or NaN
            out[f"{source.name} != 0.0"] = out[f"-{MAX} <= {source.name}"] = out[f"{source.name} <= {MAX}"] = None
    places = {place.name: place for fake, source, _ in shapes.tracked for place, _value in _properties(fake, source)}
    return [(line, tuple((n, s) for n, s in places.items() if n in line)) for line in out]


def _ranges(shapes: Shapes, used: set[Any]) -> list[str]:
    from torch.utils._sympy.numbers import int_oo

    env = shapes.shape_env
    out = []
    for symbol in used:
        entry = shapes.symbol_sources.get(symbol)
        bounds = env.var_to_range.get(symbol)
        if entry is None or bounds is None:
            continue
        name = entry[1].name
        if bounds.lower not in (-int_oo,) and not bounds.lower.is_infinite:
            out.append(f"{int(bounds.lower) if bounds.lower.is_Integer else float(bounds.lower)} <= {name}")
        if bounds.upper not in (int_oo,) and not bounds.upper.is_infinite:
            out.append(f"{name} <= {int(bounds.upper) if bounds.upper.is_Integer else float(bounds.upper)}")
    return out
