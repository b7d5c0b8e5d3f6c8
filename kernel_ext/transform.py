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
        begin = f"__import__({MODULE!r}, fromlist=['begin']).begin({found['args'] or ''!r}, {self._keep(lines)!r})\n"
        return [begin, *lines[1:]]

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
        if not isinstance(node, ast.Module) or not node.body or not _is_begin(node.body[0]):
            return node
        begin, *body = node.body
        token = next(self._tokens)
        assert isinstance(begin, ast.Expr) and isinstance(begin.value, ast.Call)
        begin.value.args.append(ast.copy_location(ast.Constant(token), begin))
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


def _is_begin(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    attribute = call.func if isinstance(call, ast.Call) else None
    if not isinstance(attribute, ast.Attribute) or attribute.attr != "begin" or not isinstance(attribute.value, ast.Call):
        return False
    arguments = attribute.value.args
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == MODULE


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
