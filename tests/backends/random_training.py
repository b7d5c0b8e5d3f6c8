"""Random programs that change their arguments and are differentiated: results, arguments and gradients against eager.

By hand: `python -m tests.backends.random_training COUNT SEED [BACKEND]`. A program that eager itself refuses to run or to differentiate is
left out. One whose backward only the compiled program refuses, since a tensor was changed after a graph had saved it, isn't counted as a
difference: a graph has one backward, which needs all that was saved even if only some of its results have gradients.
"""

from __future__ import annotations

import linecache
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

import dynamo_nb
from dynamo_nb.core import events

NEW = (
    "{a} * {b}", "{a} + {b}", "{a} - {b} * 2", "torch.tanh({a})", "{a}.sigmoid() * {b}", "{a}.sum(-1, keepdim=True) * {b}",
    "torch.where({a} > {b}, {a}, {b})", "{a}.clone()", "{a}.detach()", "{a}.exp()", "{a} @ {b}.mT", "torch.softmax({a}, -1)", "{a} / ({b}.abs() + 1)",
    "{a}[:, 1:].sum() * {b}", "{a}.mT.contiguous().mT", "torch.cat([{a}[:1], {b}[1:]])", "F.layer_norm({a}, ({a}.shape[-1],))", "{a}.flip(0)",
    "{a}[torch.tensor([2, 0, 1])]", "{a}.relu()", "{a}.mean() + {b}",
)
SAVED = ("{a}.exp().mT", "({a} * {b}).sigmoid().view(9).view(3, 3)", "{a}.tanh().detach()")
VIEWS = (
    "{a}[:]", "{a}.view(3, 3)", "{a}.mT", "{a}.reshape(9).view(3, 3)", "{a}.unsqueeze(0).squeeze(0)", "{a}.view_as({b})",
)
CHANGES = (
    "{a}.mul_({b})", "{a}.add_({b})", "{a} += {b}", "{a} *= 2", "{a}.sigmoid_()", "{a}.copy_({b})", "{a}[1:].mul_(2)", "{a}[0] = {b}[1]", "{a}.relu_()",
    "{a}.zero_()", "{a}[:, 1].add_({b}[:, 0])", "{a}.masked_fill_({b} > 0, 0.5)", "{a}.mT.mul_({b})", "{a}.tanh_()", "{a}.div_({b}.abs() + 1)",
    "{a}.addcmul_({b}, {b})", "{a}.exp_()", "{a}.index_put_((torch.tensor([2, 0]),), {b}[:2])", "{a}.index_add_(0, torch.tensor([1, 1, 0]), {b})",
    "{a}.atan2_({b})", "{a}.detach().add_(1)", "{a}.lerp_({b}, 0.3)",
)
WHOLE = (
    "{a}.mul_({a})", "{a}.sigmoid_()", "{a}.copy_({a} * 2)", "{a}.addcmul_({a}, {a})", "{a}.mT.add_(1)", "{a}.add_({a})", "{a}[0] = {a}[1] + 1",
)
MODIFIED = "modified by an inplace operation"


def source(seed: int, new: tuple[str, ...] = NEW) -> str:
    """A function of x (part of the graph of gradients), y (a leaf), n (without gradients) and v (memory of x)."""
    r = random.Random(seed)
    names = ["x", "y", "n", *(["v"] if r.random() < 0.4 else [])]
    lines = [f"def f({', '.join(names)}):"]
    indent, memory = "    ", {"x": "x", "v": "x", "y": "y", "n": "n"}
    for i in range(r.randint(2, 9)):
        a, b = r.choice(names), r.choice(names)
        if r.random() < 0.45:
            a = r.choice([n for n in names if memory[n] != "y"])
            apart = memory[a] != memory[b] or a == b        # else eager's own result depends on the order of memory
            lines.append(indent + r.choice(CHANGES if a != b else WHOLE).format(a=a, b=b if apart else f"{b}.clone()"))
        else:
            form = r.choice((*new, *VIEWS))
            lines.append(f"{indent}t{i} = {form.format(a=a, b=b)}")
            names.append(f"t{i}")
            memory[f"t{i}"] = memory[a] if form in VIEWS or "detach" in form else f"t{i}"
    if r.random() < 0.15:
        at = r.randint(1, len(lines))
        lines[at:] = [indent + "with torch.no_grad():", *(indent + line for line in lines[at:] or [indent + "x.add_(1)"])]
    given = r.sample(names, min(len(names), r.randint(1, 4)))
    return "\n".join([*lines, f"    return {', '.join(given)},"])


def function(text: str, seed: int) -> Callable[..., Any]:
    name, scope = f"<random training {seed}>", {"torch": torch, "F": torch.nn.functional}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
    return scope["f"]  # type: ignore[return-value]


def outcome(fn: Callable[..., Any], takes_view: bool, seed: int, late: int | None = None) -> tuple[str, list[Any]]:
    """What a call raised, or its results, its arguments afterwards, which of them are the same object or memory, and gradients.

    late: something that the call gave or was given is changed between the call and the backward.
    """
    torch.manual_seed(seed)
    base, y, n = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    x = base * 1
    args = [x, y, n, *([x.mT] if takes_view else [])]
    try:
        results = fn(*args)
        after = [*results, *args]
        _ = [t.grad_fn for t in after]      # raises for views made under no_grad that were changed later
    except Exception as err:
        return f"call: {type(err).__name__}", []
    shared = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in after] for a in after]
    facts = [(t.requires_grad, t.is_leaf, t.shape, any(t is a for a in args), t._version > 0 if any(t is a for a in args) else None) for t in after]
    values = [t.detach().clone() for t in after]
    try:
        if late is not None:
            with torch.no_grad():
                after[late % len(after)].mul_(2)
        total = sum((t * (i + 1)).sum() for i, t in enumerate(after) if t.requires_grad)
        grads = torch.autograd.grad(total, [base, y], allow_unused=True) if isinstance(total, torch.Tensor) else ()
    except RuntimeError as err:
        return f"backward: {type(err).__name__}: {err}", []
    return "", [values, grads, shared, facts]


def check(seed: int, backend: str = "triton_cpp", runs: int = 2) -> tuple[str, int | None]:
    """What differs from eager, and the number of graphs; None where eager refuses the program."""
    text = source(seed)
    fn, takes_view = function(text, seed), ", v)" in text
    want = outcome(fn, takes_view, seed)
    if want[0]:
        return "", None
    graphs: list[Any] = []
    dynamo_nb.reset()
    compiled = dynamo_nb.compile(fn, backend=backend)
    with events.listening(lambda kind, record: graphs.extend(record.graphs) if kind == "compile_end" else None):
        for _ in range(runs):
            got = outcome(compiled, takes_view, seed)
            if MODIFIED in got[0]:
                return "", len(graphs)
            if got[0]:
                return f"seed {seed}: {got[0]}\n{text}", len(graphs)
            for what, w, g in [*zip(("values", "gradients", "shared memory", "facts"), want[1], got[1], strict=True)][::-1]:
                if isinstance(w, tuple) or what == "values":
                    try:
                        torch.testing.assert_close([*g], [*w], rtol=1e-4, atol=1e-5, equal_nan=True)
                    except (AssertionError, TypeError) as err:
                        return f"seed {seed}: {what}: {' '.join(str(err).split())[:300]}\n{text}", len(graphs)
                elif w != g:
                    return f"seed {seed}: {what}: {w} against {g}\n{text}", len(graphs)
    return "", len(graphs)


def check_late(seed: int, backend: str = "triton_cpp") -> str:
    """What late changes do to the gradients: nothing, or the backward raises. Both are right whichever eager does, another gradient never is."""
    text = source(seed, NEW + SAVED)
    fn, takes_view = function(text, seed), ", v)" in text
    error, want = outcome(fn, takes_view, seed)
    if error:
        return ""
    dynamo_nb.reset()
    compiled = dynamo_nb.compile(fn, backend=backend)
    for i in range(count := len(want[0])):
        late = (seed + i) % count
        if (refused := outcome(fn, takes_view, seed, late)[0]) and MODIFIED not in refused:
            continue
        error, got = outcome(compiled, takes_view, seed, late)
        if error and MODIFIED not in error:
            return f"seed {seed}, {late} changed late: {error}\n{text}"
        if not error:
            try:
                torch.testing.assert_close([*got[1]], [*want[1]], rtol=1e-4, atol=1e-5, equal_nan=True)
            except (AssertionError, TypeError) as err:
                return f"seed {seed}, {late} changed late: gradients: {' '.join(str(err).split())[:300]}\n{text}"
    return ""


def main(count: int, first: int = 0, backend: str = "triton_cpp") -> int:
    found = without = refused = 0
    for seed in range(first, first + count):
        try:
            why, graphs = check(seed, backend)
            why = why or check_late(seed, backend)
        except Exception as err:
            why, graphs = f"seed {seed}: {type(err).__name__}: {err}"[:400], 0
        without += graphs == 0
        refused += graphs is None
        if why:
            found += 1
            print(why, flush=True)
    print(f"{count} programs, {found} differ, {without} without a graph, {refused} that eager refuses")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
