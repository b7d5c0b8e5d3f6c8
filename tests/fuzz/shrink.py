"""Makes a failing program small: fewer calls, statements and parameters, unwrapped blocks, simpler expressions.

In: a program, its outcome and a subject. Out: the smallest program found that still differs in the same way. Candidates run
in forked children, some at a time. Called by the CLI.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .batch import Context, run_many
from .program import Program
from .runner import Outcome
from .subjects import Subject

CHUNK = 10
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    """Every statement list in a tree, innermost last."""
    out = []
    for node in ast.walk(tree):
        for name in BODIES:
            value = getattr(node, name, None)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                out.append(value)
    return out


def _in_entry(tree: ast.Module, index: int) -> bool:
    """Whether a statement list lies in the function under test, which is cut first."""
    body = bodies(tree)[index]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in ("f", "make_f", "Holder", "Entry"):
            return any(body is other for other in bodies(node))
    return False


def deletions(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees with a run of statements removed, long runs first."""
    for index in sorted(range(len(bodies(tree))), key=lambda i: (not _in_entry(tree, i), i)):
        size = len(bodies(tree)[index])
        run = max(1, size // 2)
        while run >= 1:
            for start in range(size - run, -1, -run):
                cut = copy.deepcopy(tree)
                body = bodies(cut)[index]
                if any(isinstance(n, (ast.Import, ast.ImportFrom)) for n in body[start : start + run]):
                    continue
                if run == size == 1 and isinstance(body[0], ast.Pass):
                    continue
                body[start : start + run] = [] if size > run or body is cut.body else [ast.Pass()]
                yield cut
            run //= 2


def unwrappings(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees where one compound statement is replaced by its body or its else part."""
    for index, body in enumerate(bodies(tree)):
        for pos, node in enumerate(body):
            if not isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                continue
            for part in ("body", "orelse", "finalbody"):
                if getattr(node, part, None):
                    cut = copy.deepcopy(tree)
                    target = bodies(cut)[index]
                    target[pos : pos + 1] = getattr(target[pos], part)
                    yield cut
            for clear in ("orelse", "finalbody"):
                if getattr(node, clear, None) and (clear == "orelse" or node.handlers):  # type: ignore[union-attr]
                    cut = copy.deepcopy(tree)
                    setattr(bodies(cut)[index][pos], clear, [])
                    yield cut


def _simpler(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call):
        inner: list[ast.expr] = list(node.args)
        if isinstance(node.func, ast.Attribute):
            inner.append(node.func.value)
        return [a for a in inner if not isinstance(a, ast.Starred)]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) > 1 and isinstance(node.ctx, ast.Load):
        out: list[ast.expr] = []
        for i in range(len(node.elts)):
            out.append(type(node)(elts=node.elts[:i] + node.elts[i + 1 :], ctx=ast.Load()))
        return out
    return []


class _Swap(ast.NodeTransformer):
    """Replaces the n-th expression (in visiting order) by one of its simpler forms."""

    def __init__(self, index: int, choice: int) -> None:
        self.index, self.choice, self.count, self.done = index, choice, -1, False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and not self.done:
            forms = _simpler(node)
            if forms:
                self.count += 1
                if self.count == self.index:
                    self.done = True
                    return forms[self.choice] if self.choice < len(forms) else node
        return self.generic_visit(node)


def simplifications(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees with one expression replaced by a part of it."""
    total = sum(bool(isinstance(n, ast.expr) and _simpler(n)) for n in ast.walk(tree))
    before = ast.dump(tree)
    for index in range(total):
        for choice in range(4):
            cut = _Swap(index, choice).visit(copy.deepcopy(tree))
            if ast.dump(cut) == before:
                break
            yield cut  # type: ignore[misc]


def without_parameter(tree: ast.Module) -> Iterator[ast.Module]:
    """Trees whose entry has one parameter less, in its signature and in the calls."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in ("f", "run", "forward")]
    entry = next((n for n in functions if _is_entry(tree, n)), None)
    if entry is None:
        return
    for name in [a.arg for a in (*entry.args.args, *entry.args.kwonlyargs) if a.arg != "self"]:
        cut = copy.deepcopy(tree)
        for node in ast.walk(cut):
            if isinstance(node, ast.FunctionDef) and node.name == entry.name and node.lineno == entry.lineno:
                _drop_argument(node.args, name)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
                args, kwargs = node.value.elts
                if isinstance(args, ast.Tuple) and isinstance(kwargs, ast.Dict) and node.col_offset >= 4:
                    args.elts = [e for e in args.elts if not (isinstance(e, ast.Name) and e.id == name)]
                    pairs = zip(kwargs.keys, kwargs.values, strict=True)
                    keep = [(k, v) for k, v in pairs if not (isinstance(k, ast.Constant) and k.value == name)]
                    kwargs.keys, kwargs.values = [k for k, _ in keep], [v for _, v in keep]
        yield cut


def _is_entry(tree: ast.Module, fn: ast.FunctionDef) -> bool:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in ("f", "make_f", "Holder", "Entry"):
            return any(fn is other for other in ast.walk(node))
    return False


def _drop_argument(args: ast.arguments, name: str) -> None:
    for i, arg in enumerate(args.args):
        if arg.arg == name:
            first_default = len(args.args) - len(args.defaults)
            if i >= first_default:
                del args.defaults[i - first_default]
            del args.args[i]
            return
    for i, arg in enumerate(args.kwonlyargs):
        if arg.arg == name:
            del args.kwonlyargs[i], args.kw_defaults[i]
            return


class Shrinker:
    """Greedy reduction within a time limit in seconds."""

    def __init__(self, program: Program, outcome: Outcome, subject: Subject, seconds: float, context: Context) -> None:
        self.best, self.goal, self.subject, self.context = program, outcome, subject, context
        self.end = time.monotonic() + seconds
        self.count = 0

    def holds(self, out: Outcome) -> bool:
        """Whether a candidate still shows the finding, with no eager exception the original did not have."""
        if self.goal.status in ("crashed", "hung"):
            return out.status == self.goal.status
        return out.status == "differs" and out.signature == self.goal.signature and set(out.errors) <= set(self.goal.errors)

    def candidate(self, **changes: object) -> Program | None:
        """The best program changed; None if that is no Python."""
        self.count += 1
        made = replace(self.best, tag=f".{self.count}", _code=None, **changes)  # type: ignore[arg-type]
        try:
            made.code()
        except (SyntaxError, ValueError):
            return None
        finally:
            made.forget()
        return made

    def first(self, candidates: list[Program | None]) -> int | None:
        """Index of the first candidate that holds; it becomes the best."""
        good = [(i, c) for i, c in enumerate(candidates) if c is not None]
        runs = run_many([c for _, c in good], self.subject, batch=len(good), timeout=20.0, context=self.context)
        for (i, made), out in zip(good, runs, strict=False):
            if self.holds(out):
                self.best = made
                runs.close()  # type: ignore[attr-defined]
                return i
        return None

    def trees(self, moves: Callable[[ast.Module], Iterator[ast.Module]]) -> bool:
        """Try all results of one kind of move, going on behind the last success."""
        index, changed = 0, False
        while time.monotonic() < self.end:
            found = list(itertools.islice(moves(ast.parse(self.best.source)), index, index + CHUNK))
            if not found:
                break
            hit = self.first([self.candidate(source=ast.unparse(ast.fix_missing_locations(tree)) + "\n") for tree in found])
            changed |= hit is not None
            index += len(found) if hit is None else hit
        return changed

    def sweep(self) -> bool:
        """One round over all kinds of reduction; True if something got smaller."""
        changed = self.best.calls > 1 and self.first([self.candidate(calls=n) for n in range(1, self.best.calls)]) is not None
        for moves in (deletions, without_parameter, unwrappings, simplifications):
            changed |= self.trees(moves)
        return changed


def shrink(program: Program, outcome: Outcome, subject: Subject, seconds: float = 60.0,
           context: Context = contextlib.nullcontext) -> Program:  # fmt: skip
    """The smallest program found in `seconds` that still shows the finding."""
    shrinker = Shrinker(program, outcome, subject, seconds, context)
    while time.monotonic() < shrinker.end and shrinker.sweep():
        continue
    return shrinker.best
