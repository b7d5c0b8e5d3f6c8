"""Groups compile records by function and marks the source lines.

In: records and sketches. Out: `FunctionReport`s (a function's own frames and its resume functions
together, inlined helpers of the user's after them) and, for one of them, `SourceLine`s with the mark
each line carries. Called by `collect` and `sections`.
"""

from __future__ import annotations

import ast
import dataclasses
import linecache
import sysconfig
import textwrap
from collections.abc import Iterator, Sequence

from dynamo_nb.core.records import BreakRecord, CompileRecord
from dynamo_nb.reports.model import FunctionReport, FunctionSketch

COMPILED, EAGER, BREAK, PLAIN = "compiled", "eager", "break", ""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True)
class SourceLine:
    number: int
    text: str
    mark: str
    breaks: tuple[BreakRecord, ...] = ()


def assemble(records: Sequence[CompileRecord], sketches: Sequence[FunctionSketch]) -> list[FunctionReport]:
    """One FunctionReport a function, sketches first, then others as they were met, then helpers."""
    found: dict[tuple[str, int], FunctionReport] = {}
    for sketch in sketches:
        found[sketch.file, sketch.first_line] = FunctionReport(sketch.name, sketch.file, sketch.first_line, sketch.source)
    for record in records:
        key = (record.file, record.first_line)
        if key not in found:
            found[key] = FunctionReport(record.function, record.file, record.first_line, record.source or _read(record))
        function = found[key]
        function.records.append(record)
        function.source = function.source or record.source or _read(record)
    reports = list(found.values())
    for function in reports:
        function.inlined = not function.records and _traced_elsewhere(function, reports)
    return reports + list(_helpers(reports))


def _traced_elsewhere(function: FunctionReport, reports: Sequence[FunctionReport]) -> bool:
    """Were its lines traced as part of a caller?"""
    last = function.first_line + function.source.count("\n")
    lines = (line for report in reports for record in report.records for line in record.compiled_lines.get(function.file, ()))
    return any(function.first_line < line <= last for line in lines)


def _read(record: CompileRecord) -> str:
    return "".join(linecache.getlines(record.file)[record.first_line - 1 : record.last_line])


def _helpers(reports: Sequence[FunctionReport]) -> Iterator[FunctionReport]:
    """The user's functions that were traced as part of a caller and so have no record."""
    covered = {(f.file, line) for f in reports for line in range(f.first_line, f.first_line + f.source.count("\n") + 1)}
    touched: dict[str, set[int]] = {}
    for function in reports:
        for record in function.records:
            for file, lines in record.compiled_lines.items():
                touched.setdefault(file, set()).update(lines)
            for item in record.breaks:
                touched.setdefault(item.location.file, set()).add(item.location.line)
    for file, numbers in touched.items():
        open_lines = {number for number in numbers if (file, number) not in covered}
        if not open_lines or is_library(file):
            continue
        text = linecache.getlines(file)
        for node, name in _functions_of("".join(text)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if any(first <= number <= last for number in open_lines):
                yield FunctionReport(name, file, first, "".join(text[first - 1 : last]), inlined=True)


def _functions_of(source: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Outermost functions of a module and its classes, with their dotted names."""
    try:
        tree = compile(source, "<report>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return
    pending: list[tuple[ast.AST, str]] = [(tree, "")]
    while pending:
        parent, prefix = pending.pop(0)
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, _FUNCTIONS):
                yield node, prefix + node.name
            elif isinstance(node, ast.ClassDef):
                pending.append((node, f"{prefix}{node.name}."))
            elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                pending.append((node, prefix))


def is_library(file: str) -> bool:
    """Whether a file belongs to the standard library, an installed package or this compiler."""
    paths = sysconfig.get_paths()
    ours = __file__.rsplit("/reports/", 1)[0]
    roots = (paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], ours)
    return any(file.startswith(root.rstrip("/") + "/") for root in roots) or file.startswith("<frozen")


def marked_lines(function: FunctionReport, reports: Sequence[FunctionReport]) -> list[SourceLine]:
    """The function's lines with their marks; no marks where it was never called."""
    records = [record for report in reports for record in report.records]
    compiled = {line for record in records for line in record.compiled_lines.get(function.file, ())}
    breaks: dict[int, dict[tuple[str, str], BreakRecord]] = {}
    for record in records:
        for item in record.breaks:
            if item.location.file == function.file:
                breaks.setdefault(item.location.line, {}).setdefault((item.id, item.reason), item)
    called = bool(function.records) or function.inlined
    marks = _marks(function, compiled, set(breaks)) if called else {}
    result = []
    for offset, text in enumerate(function.source.splitlines()):
        number = function.first_line + offset
        found = tuple(breaks.get(number, {}).values()) if called else ()
        result.append(SourceLine(number, text, BREAK if found else marks.get(number, PLAIN), found))
    return result


def _marks(function: FunctionReport, compiled: set[int], broken: set[int]) -> dict[int, str]:
    """Line -> mark. A statement over several lines counts as compiled if any of its own lines was."""
    try:
        tree = ast.parse(textwrap.dedent(function.source))
    except SyntaxError:
        last = function.first_line + function.source.count("\n")
        return {line: COMPILED for line in compiled if function.first_line < line <= last}
    marks: dict[int, str] = {}
    for first, last in _statements(tree):
        span = range(function.first_line + first - 1, function.first_line + last)
        traced = [line for line in span if line in compiled]
        for line in traced:
            marks[line] = COMPILED
        if not broken.intersection(span):
            marks[span[0]] = COMPILED if traced else EAGER
    return marks


def _statements(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """(first, last) line of every executable statement inside functions; of a block only its head."""
    for function in ast.walk(tree):
        if not isinstance(function, _FUNCTIONS):
            continue
        skip = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
        pending = [node for node in function.body if node is not skip]
        while pending:
            node = pending.pop()
            inner = [child for child in _blocks(node)]
            if not isinstance(node, (ast.Global, ast.Nonlocal, ast.Try)):
                last = (node.end_lineno or node.lineno) if not inner else max(node.lineno, min(c.lineno for c in inner) - 1)
                yield node.lineno, last
            if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                pending.extend(inner)


def _blocks(node: ast.stmt) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(node, field, ())
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from part.body
