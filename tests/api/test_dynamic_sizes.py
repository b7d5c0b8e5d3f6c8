# mypy: ignore-errors
"""Sizes and numbers as symbols: automatic, by option, by mark; specialisation; limits and RUN_ONLY."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import CompileCounter
from tests.differ import differ


def graphs_of(fn, *calls, **options):
    """Results equal eager; returns how many graphs each call added."""
    count, added = CompileCounter(), []
    compiled = dynamo_nb.compile(fn, backend=count, **options)
    for args in calls:
        before = count.frame_count
        got, want = compiled(*args), fn(*args)
        assert type(got) is type(want) and (torch.equal(got, want) if isinstance(got, torch.Tensor) else got == want), (got, want)
        added.append(count.frame_count - before)
    return added


def vectors(*sizes):
    return [(torch.arange(float(n)),) for n in sizes]


def test_automatic() -> None:
    assert graphs_of(lambda x: x * x.shape[0], *vectors(3, 3, 4, 5, 9)) == [1, 0, 1, 0, 0]


def test_zero_and_one_stay_special() -> None:
    assert graphs_of(lambda x: (x * 2).sum(), *vectors(3, 4, 1, 0, 7, 1, 0)) == [1, 1, 1, 1, 0, 0, 0]


def test_dynamic_from_the_start_and_never() -> None:
    assert graphs_of(lambda x: x * 2, *vectors(3, 4, 5), dynamic=True) == [1, 0, 0]
    assert graphs_of(lambda x: x * 2, *vectors(3, 4, 5, 4), dynamic=False) == [1, 1, 1, 0]


def test_each_dimension_by_itself() -> None:
    calls = [(torch.ones(a, b),) for a, b in ((2, 3), (4, 3), (5, 3), (5, 6), (7, 8))]
    assert graphs_of(lambda x: x.t() @ x, *calls) == [1, 1, 0, 1, 0]


def test_equal_sizes_are_one_symbol_only_while_they_are() -> None:
    calls = [(torch.ones(a), torch.ones(b)) for a, b in ((2, 2), (3, 3), (4, 4))]
    assert graphs_of(lambda x, y: x + y, *calls) == [1, 1, 0]
    with pytest.raises(RuntimeError, match="must match"):
        dynamo_nb.compile(lambda x, y: x + y, backend="eager", dynamic=True)(torch.ones(3), torch.ones(4))


def test_branches_on_sizes() -> None:
    def f(x):
        return x + 1 if x.shape[0] > 5 else x - 1

    assert graphs_of(f, *vectors(3, 4, 5, 6, 10, 2)) == [1, 1, 0, 1, 0, 0]


def test_arithmetic_of_sizes() -> None:
    def f(x):
        n = x.shape[0]
        half = n // 2
        return x[: n - half].sum() + n % 3 + max(n, 4) + min(n, half) * 2 + (n**2) / 3 + len(x) + x.numel() + x.new_zeros(n * 2).sum() + torch.arange(n).sum()

    assert sum(graphs_of(f, *vectors(6, 8, 10, 12, 9))) <= 4


def test_views_of_symbolic_sizes() -> None:
    def f(x):
        b, t = x.shape
        return x.view(b * t).reshape(t, -1).expand(t, b).unsqueeze(0).permute(2, 1, 0).flatten(), torch.cat([x, x], 1)[:, t:].sum()

    differ(f, *[(torch.randn(b, 4),) for b in (2, 3, 5)], graphs=2)


def test_loops_over_sizes_specialise() -> None:
    def f(x):
        out = x.sum()
        for i in range(x.shape[0]):
            out = out + i
        return out

    assert graphs_of(f, *vectors(2, 3, 4, 3)) == [1, 1, 1, 0]


def test_sizes_returned_and_printed() -> None:
    def f(x):
        return x.shape, x.shape[0], f"{x.shape[0]}", {"n": x.size(0)}, [0] * x.shape[0]

    for n in (2, 3, 5):
        assert dynamo_nb.compile(f, backend="eager")(torch.ones(n)) == f(torch.ones(n))
    differ(f, *vectors(2, 3, 5, 2))


INTS = (3, 4, 10, -2, 7)


def test_ints_of_every_place() -> None:
    class Box:
        def __init__(self, n):
            self.n = n

    places = {
        "argument": (lambda x, a: x + a, lambda n: n),
        "list": (lambda x, a: x + a[0], lambda n: [n]),
        "dict": (lambda x, a: x + a["k"], lambda n: {"k": n}),
        "tuple": (lambda x, a: x + a[1], lambda n: ("s", n)),
        "attribute": (lambda x, a: x + a.n, Box),
    }
    x = torch.ones(2)
    for place, (fn, make) in places.items():
        dynamo_nb.reset()
        assert graphs_of(fn, *[(x, make(n)) for n in INTS]) == [1, 1, 0, 0, 0], place


def test_an_int_attribute_of_a_module() -> None:
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    m, count = Counted(), CompileCounter()
    f = dynamo_nb.compile(m, backend=count)
    assert [f(torch.ones(1)).item() for _ in range(8)] == [float(i) for i in range(1, 9)]
    assert count.frame_count <= 3 and m.calls == 8


def test_ints_that_must_be_constants() -> None:
    assert graphs_of(lambda x, n: x.sum(n), *[(torch.ones(2, 2), n) for n in (0, 1, 0, 1)]) == [1, 1, 0, 0]
    assert graphs_of(lambda x, n: [x, x + 1, x + 2][n], *[(torch.ones(2), n) for n in (0, 1, 2)])[:2] == [0, 1]
    assert graphs_of(lambda x, n: x * {1: 5, 2: 6}[n], *[(torch.ones(2), n) for n in (1, 2, 1)]) == [1, 1, 0]


def test_int_results_and_types() -> None:
    def f(x, n):
        return x + n, n + 1, n // 2, n % 3, -n, n == 4, n / 2, float(n), str(n), n > 3 or n, divmod(n, 3), n.bit_length(), [n] * 2, n & 3, n << 1, abs(n), hash(n)  # noqa: E501

    differ(f, *[(torch.ones(2), n) for n in (3, 4, 5, 9, 2)])


def test_float_results_and_types() -> None:
    def f(x, a):
        return x * a, a + 1, a // 2, a % 3, -a, a > 1, a == 0.5, int(a), round(a), a - a, a * 0, abs(a), a**2, max(a, 0.5), f"{a:.1f}", a / 3

    differ(f, *[(torch.ones(2), a) for a in (0.5, 2.25, 7.0, -0.0, 1e300)])


@pytest.mark.parametrize("values", [(1.0, float("nan"), float("inf"), -float("inf"), 0.0, -0.0)])
def test_special_floats(values) -> None:
    differ(lambda x, a: (x * a, a, a == a, a > 0), *[(torch.ones(2), a) for a in values])


def test_numbers_of_another_type_are_another_entry() -> None:
    differ(lambda x, n: (x + n, n, type(n)), *[(torch.ones(2), n) for n in (1, 2, True, 2.0, False, 3, 1.0)])


def test_big_ints() -> None:
    differ(lambda x, n: (x + 1, n * n, n + 1), *[(torch.ones(2), n) for n in (3, 4, 2**62, 2**70, -(2**63))])


def test_mark_dynamic_and_static() -> None:
    def f(x):
        return x * x.shape[0]

    def marked(n, mark, **how):
        x = torch.ones(n)
        mark(x, 0, **how)
        return (x,)

    assert graphs_of(f, *[marked(n, dynamo_nb.mark_dynamic) for n in (3, 5, 8)]) == [1, 0, 0]
    dynamo_nb.reset()
    assert graphs_of(f, *[marked(n, dynamo_nb.mark_static) for n in (3, 5, 8, 5)]) == [1, 1, 1, 0]
    dynamo_nb.reset()
    assert graphs_of(f, *[marked(n, dynamo_nb.maybe_mark_dynamic) for n in (3, 5)]) == [1, 0]
    dynamo_nb.reset()
    assert graphs_of(f, *[marked(n, dynamo_nb.mark_dynamic, min=2, max=10) for n in (3, 10)]) == [1, 0]
    with pytest.raises(IndexError, match="dimension 3"):
        dynamo_nb.mark_dynamic(torch.ones(2), 3)


def test_a_broken_promise_is_an_error_naming_it() -> None:
    x = torch.ones(4)
    dynamo_nb.mark_dynamic(x, 0)
    for fn in (lambda t: t + 1 if t.shape[0] == 4 else t, lambda t: t + torch.ones(4)):
        with pytest.raises(dynamo_nb.exc.ConstraintViolationError, match="marked dynamic"):
            dynamo_nb.compile(fn, backend="eager")(x)


def test_symbols_across_a_break() -> None:
    def f(x, n):
        y = x * n
        print("size", x.shape[0], n)
        return y[: x.shape[0] // 2] + n, x.shape[0] * n

    differ(f, *[(torch.ones(s), n) for s, n in ((2, 3), (4, 5), (6, 7), (8, 2), (2, 3))])


def test_limit_warns_once_names_the_cause_and_runs_eagerly(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x, s):
        return x + len(s)

    count = CompileCounter()
    compiled = dynamo_nb.compile(f, backend=count)
    with dynamo_nb.config.patch(recompile_limit=3):
        for n in range(8):
            assert compiled(torch.ones(1), "a" * n).item() == 1 + n
    assert count.frame_count == 3 and len(dynamo_nb.cache_entries(f)) == 3
    said = capfd.readouterr().err
    assert said.count("recompile_limit (3)") == 1 and "L['s']" in said and "test_dynamic_sizes.py" in said
    assert compiled(torch.ones(1), "").item() == 1 and count.frame_count == 3


def test_limit_with_fullgraph_is_an_error() -> None:
    compiled = dynamo_nb.compile(lambda x, s: x + len(s), backend="eager", fullgraph=True)
    with dynamo_nb.config.patch(recompile_limit=2), pytest.raises(dynamo_nb.exc.FailOnRecompileLimitHit, match="recompile_limit"):
        for n in range(5):
            compiled(torch.ones(1), "a" * n)


def test_limit_counts_each_code_by_itself() -> None:
    def helper(x, s):
        print(end="")
        return x + len(s)

    def f(x, s):
        y = x * 2
        print(end="")
        return helper(y, s)

    with dynamo_nb.config.patch(recompile_limit=2):
        compiled = dynamo_nb.compile(f, backend="eager")
        for n in range(6):
            assert compiled(torch.ones(1), "a" * n).item() == 2 + n


def test_error_on_recompile() -> None:
    compiled = dynamo_nb.compile(lambda x, s: x + len(s), backend="eager")
    with dynamo_nb.config.patch(error_on_recompile=True):
        compiled(torch.ones(1), "a")
        compiled(torch.ones(1), "a")
        with pytest.raises(dynamo_nb.exc.RecompileError):
            compiled(torch.ones(1), "ab")


def test_run_compiles_nothing_new() -> None:
    count = CompileCounter()

    def f(x, s):
        return x + len(s)

    compiled = dynamo_nb.compile(f, backend=count)
    compiled(torch.ones(1), "a")
    with dynamo_nb.run():
        assert compiled(torch.ones(1), "a").item() == 2 and compiled(torch.ones(1), "abc").item() == 4
    assert count.frame_count == 1
    compiled(torch.ones(1), "abc")
    assert count.frame_count == 2
