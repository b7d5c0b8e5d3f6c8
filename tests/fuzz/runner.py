"""Runs one program eagerly and compiled on equal fresh inputs and compares everything visible.

In: a program and a subject. Out: an `Outcome` with the differences, graphs and breaks. Called by `batch`, `shrink`, tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .gen import generate
from .program import Program
from .snapshot import Diff, Snap, Snapshotter, compare, short
from .subjects import Capture, Subject

ATTEMPTS = 6
RTOL = 1e-5
HIDDEN = ("mk", "opaque", "make_state", "call_args", "entry")


@dataclass
class Call:
    """What one call did: snapshot of the world after it, output, exception."""

    snap: Snap
    stdout: str
    error: tuple[Any, ...] | None
    names: tuple[str, ...]
    backward_error: str | None = None
    exc: BaseException | None = None


@dataclass
class Outcome:
    """Result of one program. `status` is same, differs, discarded (not deterministic) or crashed."""

    seed: int
    status: str
    diffs: list[Diff] = field(default_factory=list)
    graphs: int = 0
    ops: int = 0
    whole: bool = False
    raised: bool = False
    features: tuple[str, ...] = ()
    note: str = ""
    errors: tuple[str, ...] = ()
    attempt: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the first difference."""
        return self.diffs[0].kind if self.diffs else self.status

    @property
    def signature(self) -> str:
        """What makes two findings the same for the shrinker: the kind and, for exceptions, what the compiled side raised."""
        if not self.diffs or self.diffs[0].kind != "exception":
            return self.kind
        return f"exception {self.diffs[0].compiled.split(',')[0]}"


def rng_state() -> str:
    """Digest of torch's and random's generator states."""
    digest = hashlib.sha1(torch.get_rng_state().numpy().tobytes())
    digest.update(repr(hash(random.getstate())).encode())
    return digest.hexdigest()[:12]


def describe_error(exc: BaseException) -> tuple[Any, ...]:
    """Type, message and chain of an exception."""
    chain: list[tuple[Any, ...]] = []
    cause: BaseException | None = exc
    while cause is not None and len(chain) < 4:
        chain.append((type(cause).__name__, str(cause), cause.__suppress_context__))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return tuple(chain)


def world(ns: dict[str, Any], roots: dict[str, Any]) -> Snap:
    """Snapshot of all roots and of the program's globals, in one identity space."""
    shot = Snapshotter()
    out = [(name, shot.take(value)) for name, value in roots.items()]
    names = [k for k in ns if not k.startswith("__") and k not in HIDDEN and not isinstance(ns[k], types.ModuleType)]
    out.append(("globals", ("attrs", [(k, shot.take(ns[k])) for k in names])))
    out.append(("rng", ("const", "str", rng_state())))
    out.append(("mode", ("const", "str", f"grad={torch.is_grad_enabled()}")))
    return out


def backward(result: Any) -> None:
    """Backward over the sum of every float tensor in a result that needs a gradient."""
    leaves: list[torch.Tensor] = []

    def walk(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_floating_point() and value.grad_fn is not None:
                leaves.append(value)
        elif isinstance(value, (list, tuple)):
            for v in value:
                walk(v)
        elif isinstance(value, dict):
            walk(list(value.values()))

    walk(result)
    if leaves:
        torch.stack([torch.nan_to_num(t.float()).sum() for t in leaves]).sum().backward()


def one_call(program: Program, ns: dict[str, Any], target: Callable[..., Any], state: dict[str, Any], k: int) -> Call:
    """Run call k and look at the world afterwards."""
    args, kwargs = ns["call_args"](k, state)
    torch.manual_seed(100 + k)
    random.seed(100 + k)
    out, error, result, late, caught = io.StringIO(), None, None, None, None
    with contextlib.redirect_stdout(out):
        try:
            result = target(*args, **kwargs)
        except Exception as exc:
            caught = exc
            error = describe_error(exc)
            exc.__traceback__ = None
    if program.backward and error is None:
        try:
            backward(result)
        except RuntimeError as exc:
            late = str(exc)
    owner = getattr(state.get("__target__"), "__self__", state.get("__target__"))
    roots = {"result": result, "args": args, "kwargs": kwargs, "state": {k: v for k, v in state.items() if k != "__target__"},
             "self": owner}
    grad = torch.is_grad_enabled()
    snap = world(ns, roots)
    torch.set_grad_enabled(True)
    names = tuple(k for k in ns if k != "__builtins__")
    return Call(snap, out.getvalue(), error, names, late or (None if grad else "grad mode left off"), caught)


def execute(program: Program, wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
            after: Callable[[int], None] = lambda k: None) -> list[Call]:
    """All calls of a program in a fresh namespace; `wrap` compiles the entry, `after(k)` is called after each call."""
    ns = program.namespace()
    torch.manual_seed(0)
    random.seed(0)
    state = ns["make_state"]()
    target = ns["entry"](state)
    state["__target__"] = target
    wrapped = wrap(target)
    calls = []
    for k in range(program.calls):
        calls.append(one_call(program, ns, wrapped, state, k))
        after(k)
    return calls


def diff_calls(eager: list[Call], other: list[Call], adds_names: bool = False) -> list[Diff]:
    """Differences between two runs, in order of calls; stops at the first call that differs."""
    for k, (a, b) in enumerate(zip(eager, other, strict=True)):
        out: list[Diff] = []
        at = f"call {k}"
        if a.error != b.error:
            out.append(Diff("exception", at, short(a.error, 400), short(b.error, 400)))
        if a.stdout != b.stdout:
            out.append(Diff("stdout", at, short(a.stdout, 300), short(b.stdout, 300)))
        if a.backward_error != b.backward_error:
            out.append(Diff("backward", at, short(a.backward_error), short(b.backward_error)))
        for (name, x), (_, y) in zip(a.snap, b.snap, strict=True):
            compare(name, f"{at} {name}", x, y, out, RTOL)
        if not adds_names and a.names != b.names:
            out.append(Diff("namespace", at, short(sorted(set(a.names) - set(b.names))), short(sorted(set(b.names) - set(a.names)))))
        if out:
            return out
    return []


def quiet() -> None:
    """Warnings are not compared."""
    warnings.simplefilter("ignore")


def make_program(seed: int) -> Program:
    """The program of a seed: the first attempt that raises nothing it did not mean to."""
    program = generate(seed)
    for attempt in range(ATTEMPTS):
        program = generate(seed, attempt)
        calls = execute(program, lambda fn: fn)
        bad = [c for c in calls if c.error or c.backward_error]
        intended = program.may_raise and all(c.error and c.error[0][0] in ("UserError", "ValueError", "KeyError") for c in bad)
        if not bad or intended or seed % 33 == attempt:
            break
    return program


def run_program(seed: int | Program, subject: Subject) -> Outcome:
    """Run the program of a seed (or a given one) eagerly twice and compiled once, and compare."""
    quiet()
    program = seed if isinstance(seed, Program) else make_program(seed)
    try:
        outcome = _run(program, subject)
        outcome.attempt = program.attempt
        return outcome
    finally:
        program.forget()


def _run(program: Program, subject: Subject) -> Outcome:
    eager = execute(program, lambda fn: fn)
    raised = any(c.error for c in eager)
    errors = tuple(sorted({c.error[0][0] for c in eager if c.error}))
    features = tuple(sorted(program.features))
    again = diff_calls(eager, execute(program, lambda fn: fn))
    if again:
        return Outcome(program.seed, "discarded", raised=raised, features=features, note=str(again[0]))
    capture = Capture()
    subject.reset()
    breaks = [subject.breaks()]
    graphs: list[int] = []

    def after(k: int) -> None:
        breaks.append(subject.breaks())
        graphs.append(len(capture.graphs))

    limit = sys.getrecursionlimit()
    compiled = execute(program, lambda fn: subject.compile(fn, capture), after)
    diffs = diff_calls(eager, compiled, subject.adds_names)
    if sys.getrecursionlimit() != limit:
        diffs.append(Diff("global state", "recursion limit", str(limit), str(sys.getrecursionlimit())))
    whole = bool(graphs) and graphs[0] == 1 and breaks[1] == breaks[0]
    reasons = tuple(k.split("\n")[0][:150] for k, n in breaks[1].items() if n != breaks[0].get(k))
    return Outcome(program.seed, "differs" if diffs else "same", diffs, len(capture.graphs), sum(capture.graphs), whole, raised, features,
                   errors=errors, reasons=reasons)
