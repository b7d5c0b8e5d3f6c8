"""SHAPE_ENV: a boolean Python expression over tensor properties and Python numbers, compiled for the native leaf.

In: the expression's text and (name, source) pairs, where a name is any expression standing for a
symbol, such as `L['x'].size()[0]` or `s0`. Out: a program for the stack machine in csrc/shape.cpp.
What the machine does not know is an error when the guard is built, never a guess.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from typing import Any

from ..core.source import Source, TensorPropertySource
from .accessors import PROPERTIES
from .kinds import guard_kind
from .relations import Relation

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Div: "truediv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.AST], str] = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_TWO = {
    **dict.fromkeys(("min", "Min"), "min"),
    **dict.fromkeys(("max", "Max"), "max"),
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "IntTrueDiv": "truediv",
    "FloatTrueDiv": "truediv",
    "Mod": "mod",
    "PythonMod": "mod",
    "pow": "pow",
    "PowByNatural": "pow",
    "FloatPow": "pow",
    "Eq": "eq",
    "Ne": "ne",
    "Lt": "lt",
    "Le": "le",
    "Gt": "gt",
    "Ge": "ge",
}
_ONE = {
    **dict.fromkeys(("abs", "Abs"), "abs"),
    **dict.fromkeys(("int", "trunc", "TruncToInt"), "trunc"),
    **dict.fromkeys(("float", "ToFloat", "sym_float"), "to_float"),
    **dict.fromkeys(("floor", "FloorToInt"), "floor"),
    **dict.fromkeys(("ceil", "CeilToInt"), "ceil"),
    "sqrt": "sqrt",
    "Not": "not",
    "Identity": "",
}
_FOLDED = ("min", "max", "Min", "Max")  # any number of arguments
_HELPERS: dict[str, Any] = {
    "math": math,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "Min": min,
    "Max": max,
    "Abs": abs,
    "TruncToInt": math.trunc,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "ToFloat": float,
    "sym_float": float,
    "Identity": lambda a: a,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "IntTrueDiv": lambda a, b: a / b,
    "FloatTrueDiv": lambda a, b: a / b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "PowByNatural": pow,
    "FloatPow": pow,
    "Eq": lambda a, b: a == b,
    "Ne": lambda a, b: a != b,
    "Lt": lambda a, b: a < b,
    "Le": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "Ge": lambda a, b: a >= b,
    "Not": lambda a: not a,
    "And": lambda *a: all(a),
    "Or": lambda *a: any(a),
}


def _function_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("math", "torch"):
        return node.attr
    return ""


class _Compiler:
    def __init__(self, text: str, symbols: dict[str, int]) -> None:
        self.text = text
        self.symbols = symbols
        self.program: list[tuple[Any, ...]] = []
        self.depth = self.deepest = 0

    def emit(self, op: str, operand: Any = None, effect: int = 0) -> int:
        self.program.append((op,) if operand is None else (op, operand))
        self.depth += effect
        self.deepest = max(self.deepest, self.depth)
        return len(self.program) - 1

    def fail(self, node: ast.AST) -> ValueError:
        return ValueError(f"shape guard {self.text!r}: {ast.unparse(node)!r} can't be compiled")

    def visit(self, node: ast.expr) -> None:
        index = self.symbols.get(ast.dump(node))
        if index is not None:
            self.emit("symbol", index, 1)
            return
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise self.fail(node)
        method(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, (bool, int)) and -(1 << 63) <= value < 1 << 63:
            self.emit("int", int(value), 1)
        elif isinstance(value, float):
            self.emit("float", value, 1)
        else:
            raise self.fail(node)

    def binary(self, op: str, left: ast.expr, right: ast.expr) -> None:
        self.visit(left)
        self.visit(right)
        self.emit(op, None, -1)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.fail(node)
        self.binary(op, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.visit(node.operand)
        if isinstance(node.op, ast.UAdd):
            return
        op = {ast.USub: "neg", ast.Not: "not"}.get(type(node.op))
        if op is None:
            raise self.fail(node)
        self.emit(op)

    def chain(self, jump: str, parts: list[Any]) -> None:
        """`parts` are thunks; stops at the first whose truth decides."""
        jumps = []
        for i, part in enumerate(parts):
            if i:
                jumps.append(self.emit(jump))
                self.emit("pop", None, -1)
            part()
        for at in jumps:
            self.program[at] = (jump, len(self.program))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        jump = "jump_if_false" if isinstance(node.op, ast.And) else "jump_if_true"
        self.chain(jump, [lambda v=v: self.visit(v) for v in node.values])

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        ops = [_COMPARE.get(type(op)) for op in node.ops]
        if None in ops:
            raise self.fail(node)
        steps = zip(ops, operands, operands[1:], strict=False)
        self.chain("jump_if_false", [lambda o=o, a=a, b=b: self.binary(o, a, b) for o, a, b in steps])

    def visit_Call(self, node: ast.Call) -> None:
        name, args = _function_name(node.func), node.args
        if node.keywords or not args:
            raise self.fail(node)
        if name in ("And", "Or"):
            self.chain("jump_if_false" if name == "And" else "jump_if_true", [lambda a=a: self.visit(a) for a in args])
        elif (name in _FOLDED and len(args) > 1) or (name in _TWO and len(args) == 2):
            self.visit(args[0])
            for arg in args[1:]:
                self.visit(arg)
                self.emit(_TWO[name], None, -1)
        elif name in _ONE and len(args) == 1:
            self.visit(args[0])
            if _ONE[name]:
                self.emit(_ONE[name])
        else:
            raise self.fail(node)


class _ReplaceSymbols(ast.NodeTransformer):
    def __init__(self, symbols: dict[str, int]) -> None:
        self.symbols = symbols

    def visit(self, node: ast.AST) -> Any:
        index = self.symbols.get(ast.dump(node))
        return self.generic_visit(node) if index is None else ast.Name(f"_s{index}", ast.Load())


@dataclasses.dataclass(frozen=True)
class ShapeExpression:
    text: str
    names: tuple[str, ...]
    sources: tuple[Source, ...]
    program: tuple[tuple[Any, ...], ...]
    depth: int
    code: Any  # the expression over _s0, _s1, ...

    def holds(self, values: list[Any]) -> bool:
        """Whether the expression is true for these symbol values, by Python's own arithmetic."""
        space = {**_HELPERS, **{f"_s{i}": v for i, v in enumerate(values)}}
        try:
            return bool(eval(self.code, space))
        except (ArithmeticError, ValueError, TypeError):      # a power can be complex
            return False


def compile_shape(text: str, symbols: tuple[tuple[str, Source], ...]) -> ShapeExpression:
    """ValueError when the text is no expression the native leaf can compute."""
    try:
        tree = ast.parse(text, mode="eval")
        table = {ast.dump(ast.parse(name, mode="eval").body): i for i, (name, _) in enumerate(symbols)}
    except SyntaxError as error:
        raise ValueError(f"shape guard {text!r} is no Python expression: {error}") from None
    compiler = _Compiler(text, table)
    compiler.visit(tree.body)
    replaced = ast.fix_missing_locations(_ReplaceSymbols(table).visit(tree))
    return ShapeExpression(
        text,
        tuple(name for name, _ in symbols),
        tuple(source for _, source in symbols),
        tuple(compiler.program),
        compiler.deepest,
        compile(replaced, "<shape guard>", "eval"),
    )


@guard_kind("SHAPE_ENV")
class ShapeEnv(Relation):
    """payload (expression text, ((name, source), ...)): the expression is true."""

    def prepare(self, payload: tuple[Any, ...]) -> ShapeExpression:
        text, symbols = payload
        return compile_shape(text, tuple(symbols))

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        return tuple(source for _, source in payload[1])

    def native_form(self, kept: ShapeExpression, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        symbols = []
        for slot, source in zip(slots, sources, strict=True):
            if isinstance(source, TensorPropertySource):
                symbols.append((slot, PROPERTIES[source.prop], source.index))
            else:
                symbols.append((slot, -1, 0))
        return ("shape", kept.program, tuple(symbols), max(kept.depth, 1))

    def slot_source(self, source: Source) -> Source:
        """The source whose value the leaf reads: a tensor for its properties."""
        return source.base if isinstance(source, TensorPropertySource) else source

    def python_of(self, kept: ShapeExpression, exprs: list[str]) -> str:
        return kept.text

    def names(self, kept: ShapeExpression) -> dict[str, Any]:
        return {}

    def reason_of(self, kept: ShapeExpression, values: list[Any], labels: list[str]) -> str | None:
        if kept.holds(values):
            return None
        shown = ", ".join(f"{name} = {value}" for name, value in zip(kept.names, values, strict=True))
        return f"{kept.text} no longer holds" + (f": {shown}" if shown else "")
