"""Makes a `%%compile` cell an ordinary cell whose definitions are compiled.

In: the cell's lines, then its syntax tree. Out: the same lines with the magic line replaced by one call
of `session.begin`, and the tree with one outermost decorator on every function and class defined at
cell level. The decorators reach the session through an import, so the user's namespace stays as it
was, and they carry the position of what they decorate, so every line number does too.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections import OrderedDict
from collections.abc import Iterator

from IPython.core.error import UsageError

_MAGIC = re.compile(r"%%compile(?:[ \t]+(?P<args>.*?))?[ \t]*\r?\n?$")
_OTHER_MAGIC = re.compile(r"%%(?P<name>\w+)")
STACKABLE = ("time", "timeit", "capture")
_FUTURE = re.compile(r"\s*from\s+__future__\s+import\b")
MODULE = "kernel_ext.session"
_KEPT_TEXTS = 64


class CellTransformer:
    """Input transformer (lines to lines). `texts` keeps the last cells by key for code without a file."""

    has_side_effects = True     # else IPython's terminal takes the first line for a complete cell

    def __init__(self) -> None:
        self.texts: OrderedDict[str, str] = OrderedDict()

    def __call__(self, lines: list[str]) -> list[str]:
        found = _MAGIC.match(lines[0]) if lines else None
        if found is None or lines[0].rstrip().endswith("?"):
            return lines
        other = _OTHER_MAGIC.match(lines[1]) if len(lines) > 1 else None
        if other is not None:
            if other["name"] not in STACKABLE:
                names = ', '.join(f'%%{name}' for name in STACKABLE)
                raise UsageError(f"%%compile can't be combined with %%{other['name']}; it can with {names}")
            return [lines[1], _line_of(lines[0]), *lines[2:]]
        call = f"__import__({MODULE!r}, fromlist=['begin']).begin({found['args'] or ''!r}, {self._keep(lines)!r})"
        if any(_FUTURE.match(line) for line in lines):
            call = repr(call)       # only a string may stand before such an import; DefinitionTransformer reads it
        return [call + "\n", *lines[1:]]

    def _keep(self, lines: list[str]) -> str:
        text = "".join(lines)
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        self.texts[key] = text
        self.texts.move_to_end(key)
        while len(self.texts) > _KEPT_TEXTS:
            self.texts.popitem(last=False)
        return key


def _line_of(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


class DefinitionTransformer(ast.NodeTransformer):
    """AST transformer, active only for a tree that starts with the `begin` call."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)

    def visit(self, node: ast.AST) -> ast.AST:
        call = _begin_call(node.body[0]) if isinstance(node, ast.Module) and node.body else None
        if call is None:
            return node
        assert isinstance(node, ast.Module)
        token = next(self._tokens)
        call.args.append(ast.copy_location(ast.Constant(token), call))
        begin, body = ast.copy_location(ast.Expr(call), call), node.body[1:]
        for definition in definitions(body):
            _decorate(definition, token)
        futures = 0
        while futures < len(body) and _is_future(body[futures]):
            futures += 1
        node.body = [*body[:futures], begin, *body[futures:]]
        return node


def definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of a body, also those under if, for, while, with, try and match, not nested ones."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from definitions(getattr(node, field, []))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from definitions(part.body)


def _begin_call(node: ast.stmt) -> ast.Call | None:
    """The call of `session.begin` that a statement is, or holds as a string."""
    value = node.value if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value.startswith(f"__import__({MODULE!r}"):
        text, place = value.value, value
        value = ast.parse(text, mode="eval").body
        for part in ast.walk(value):
            if isinstance(part, (ast.expr, ast.keyword)):
                ast.copy_location(part, place)
    attribute = value.func if isinstance(value, ast.Call) else None
    if not isinstance(attribute, ast.Attribute) or attribute.attr != "begin" or not isinstance(attribute.value, ast.Call):
        return None
    arguments = attribute.value.args
    if len(arguments) != 1 or not isinstance(arguments[0], ast.Constant) or arguments[0].value != MODULE:
        return None
    assert isinstance(value, ast.Call)
    return value


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _decorate(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, token: int) -> None:
    hook = ast.parse(f"__import__({MODULE!r}, fromlist=['define']).define({token}, {node.name!r})", mode="eval").body
    # A function's first line is its first decorator's, so ours takes that place exactly.
    place = node.decorator_list[0] if node.decorator_list else node
    for part in ast.walk(hook):
        if isinstance(part, (ast.expr, ast.keyword)):
            ast.copy_location(part, place)
            part.end_lineno, part.end_col_offset = part.lineno, part.col_offset
    node.decorator_list.insert(0, hook)
