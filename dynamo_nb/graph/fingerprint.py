"""What a trace amounts to, as text that two traces of the same program share.

In: a closed trace. Out: lines for the inputs, the graph, the written code with its constants, and the
effects. `strict="retrace"` compares an entry's lines with those of a trace made at a hit.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch.fx

from ..cpython.assemble import decode
from ..cpython.instruction import Instruction

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


class Fingerprint:
    """lines: everything. names: what symbols and objects are called after. operations: what is compared when those differ."""

    def __init__(self, recorder: Any, code: types.CodeType, graphs: Iterable[Any]) -> None:
        self._graphs = {id(graph) for graph in graphs}
        self.names = {str(symbol): source.name for symbol, (_, source) in recorder.shapes.symbol_sources.items()}, recorder.merged
        targets = [f"{node.op} {_target(node)}" for node in recorder.graph.nodes if node.op not in ("placeholder", "output")]
        self.operations = [t for t in targets if "sym_" not in t and "operator" not in t]
        self.lines = [
            *(f"input {entry.node.name} = {entry.source.name} ({entry.load})" for entry in recorder.inputs),
            *(f"node {node.op} {node.name} {_target(node)} {node.args} {node.kwargs}" for node in recorder.graph.nodes),
            *(f"effect {text}" for text in recorder.side_effects.describe()),
            *self._code_lines(code),
        ]

    def _code_lines(self, code: types.CodeType) -> list[str]:
        """Instructions with operands; constants by value, callables by name, other objects by type."""
        lines = [f"code {code.co_name} {code.co_varnames} {code.co_freevars}"]
        decoded = decode(code, fresh=True)
        inner: list[types.CodeType] = []
        for inst in decoded.instructions:
            lines.append(f"{inst.opname} {self._operand(inst, inner)}")
        lines += [f"handler {e.start.offset}..{e.end.offset} -> {e.target.offset} ({e.depth})" for e in decoded.exceptions]
        for nested in inner:
            lines += self._code_lines(nested)
        return lines

    def _operand(self, inst: Instruction, inner: list[types.CodeType]) -> str:
        if inst.target is not None:
            return str(inst.target.offset)
        value = inst.argval if inst.arg is not None else None
        if id(value) in self._graphs:
            return "compiled graph"
        if isinstance(value, types.CodeType):
            inner.append(value)
            return value.co_name
        return _text(value)

    def difference(self, other: Fingerprint) -> str | None:
        """None where both traces are the same program.

        Sizes that happen to be equal share a symbol, and places that happen to hold one object share a name:
        where such names differ between the traces, only the operations are compared.
        """
        mine, theirs = (self.lines, other.lines) if self.names == other.names else (self.operations, other.operations)
        for a, b in zip(mine, theirs, strict=False):
            if a != b:
                return f"the entry has\n    {a}\nand a new trace\n    {b}"
        if len(mine) != len(theirs):
            longer, who = (mine, "the entry") if len(mine) > len(theirs) else (theirs, "a new trace")
            return f"only {who} has\n    {longer[min(len(mine), len(theirs))]}"
        return None


def _target(node: torch.fx.Node) -> str:
    target = node.target
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', None) or target}"


def _text(value: Any) -> str:
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) is tuple:
        return f"({', '.join(map(_text, value))})"
    if type(value) is frozenset:
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{type(value).__qualname__} object"


__all__ = ["Fingerprint"]
