"""Floats that Python computes before the graph is called: `ComputedSource`s over the inputs' numbers and sizes.

In: a template such as `({} * {})` and its operands, symbolic or plain. Out: the source of the result,
whose function does in Python what the program does, and whose text the shape guards can compile.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..core.source import ComputedSource, Source
from .shape_guards import printer

if TYPE_CHECKING:
    from .shapes import Shapes

EXACT = 2**53


def source(shapes: Shapes, template: str, operands: tuple[Any, ...]) -> ComputedSource | None:
    leaves: dict[str, Source] = {}
    texts = []
    for operand in operands:
        text = _text(shapes, operand, leaves)
        if text is None:
            return None
        texts.append(text if _is_atom(text) else f"({text})")
    text = template.format(*texts)
    return ComputedSource(text, tuple(leaves.values()), _function(text, tuple(leaves)))


def _is_atom(text: str) -> bool:
    """No operator outside brackets: it can be an operand as it stands."""
    return isinstance(ast.parse(text, mode="eval").body, (ast.Subscript, ast.Attribute, ast.Call, ast.Name))


def _text(shapes: Shapes, operand: Any, leaves: dict[str, Source]) -> str | None:
    """The operand as Python text; what it reads is added to `leaves`."""
    if isinstance(operand, float):
        return repr(operand) if math.isfinite(operand) else None
    if isinstance(operand, int):
        return repr(int(operand)) if abs(operand) <= EXACT else None
    if not isinstance(operand, (torch.SymInt, torch.SymFloat)):
        return None
    expr = operand.node.expr
    for symbol in expr.free_symbols:
        entry = shapes.symbol_sources.get(symbol)
        if entry is None:
            return None
        found = entry[1]
        for leaf in found.leaves if isinstance(found, ComputedSource) else (found,):
            leaves[leaf.name] = leaf
    return str(printer(shapes).doprint(expr))


class _Leaves(ast.NodeTransformer):
    def __init__(self, names: tuple[str, ...]) -> None:
        self.places = {ast.dump(ast.parse(name, mode="eval").body): i for i, name in enumerate(names)}

    def visit(self, node: ast.AST) -> Any:
        index = self.places.get(ast.dump(node))
        return self.generic_visit(node) if index is None else ast.Name(f"_{index}", ast.Load())


def _function(text: str, names: tuple[str, ...]) -> Callable[..., float]:
    body = ast.unparse(ast.fix_missing_locations(_Leaves(names).visit(ast.parse(text, mode="eval"))))
    space: dict[str, Any] = {"math": math, "torch": torch, "__builtins__": {"abs": abs, "max": max, "min": min, "float": float, "int": int, "round": round}}
    compute = eval(f"lambda {', '.join(f'_{i}' for i in range(len(names)))}: {body}", space)

    def computed(*leaves: Any) -> float:
        value = compute(*leaves)
        if type(value) is not float:
            raise ArithmeticError(f"{text} is {value!r}, which is no float")
        return value

    return computed
