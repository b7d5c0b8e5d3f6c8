# mypy: ignore-errors
"""Every kind of guard: a recompile happens when the assumption breaks and only then, and its cause is named."""

from __future__ import annotations

import collections
import enum
import types

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import CompileCounter

X = torch.ones(3)


class Box:
    def __init__(self, **values):
        self.__dict__.update(values)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def add_one(t):
    return t + 1


def add_two(t):
    return t + 2


class Sub(torch.Tensor):
    pass


def strided():
    return torch.ones(3, 3).t()[:, 0]


# name: (program, first argument, equal assumptions, broken assumptions)
KINDS = {
    "bool": (lambda x, a: x + 1 if a else x, True, [True], [False]),
    "int": (lambda x, a: x + 1 if a == 3 else x - 1, 3, [3], [4]),
    "str": (lambda x, a: x + len(a), "ab", ["".join(["a", "b"])], ["cd", "abc"]),
    "none": (lambda x, a: x if a is None else x + a, None, [None], [X]),
    "float": (lambda x, a: x + 1 if a > 0.5 else x, 1.0, [1.0], [0.25]),
    "python type": (lambda x, a: x * a, 2, [2], [2.0, True]),
    "dtype": (lambda x, a: a + 1, X, [X + 3], [X.double(), X.long()]),
    "dimensions": (lambda x, a: a + 1, X, [X * 2], [X[None]]),
    "requires_grad": (lambda x, a: a + 1, X, [X * 0], [torch.ones(3, requires_grad=True)]),
    "tensor class": (lambda x, a: a + 1, X, [X.clone()], [nn.Parameter(X)]),
    "list length": (lambda x, a: x + len(a), [1, 2], [[3, 4]], [[1], [1, 2, 3]]),
    "list contents": (lambda x, a: x + len(a[0]), ["a"], [["a"]], [["bb"]]),
    "tuple": (lambda x, a: x + len(a), (1, "b"), [(1, "b")], [(1, "b", 3)]),
    "dict keys": (lambda x, a: x + len(list(a)), {"a": 1}, [{"a": 1}], [{"b": 1}, {"a": 1, "b": 2}]),
    "dict value": (lambda x, a: x + len(a["k"]), {"k": "v"}, [{"k": "v", }], [{"k": "vv"}]),
    "key presence": (lambda x, a: x + ("k" in a), {"k": 1}, [{"k": 1}], [{"q": 1}]),
    "set": (lambda x, a: x + ("k" in a), {"k"}, [{"k"}], [set()]),
    "attribute": (lambda x, a: x + len(a.n), Box(n="ab"), [Box(n="ab"), Box(n="ab", other=1)], [Box(n="abc")]),
    "attribute presence": (lambda x, a: x + getattr(a, "n", 5), Box(n=1), [Box(n=1)], [Box()]),
    "class": (lambda x, a: x + isinstance(a, Box), Box(), [Box()], [Color.RED]),
    "enum member": (lambda x, a: x + (a is Color.RED), Color.RED, [Color.RED], [Color.BLUE]),
    "function": (lambda x, a: a(x), add_one, [add_one], [add_two]),
    "builtin function": (lambda x, a: a(x), torch.sin, [torch.sin], [torch.cos]),
    "type object": (lambda x, a: x + a(3), int, [int], [float]),
    "range": (lambda x, a: x + len(a), range(3), [range(0, 3)], [range(4)]),
    "module mode": (lambda x, a: a(x), nn.Dropout(0.0).train(), [], [nn.Dropout(0.0).eval()]),
    "deque": (lambda x, a: x + len(a), collections.deque([1]), [collections.deque([1])], [collections.deque([1, 2])]),
    "torch dtype": (lambda x, a: x.to(a), torch.float64, [torch.float64], [torch.float16]),
    "slice": (lambda x, a: x[a], slice(0, 2), [slice(0, 2)], [slice(1, 2)]),
    "nested": (lambda x, a: x + len(a["k"][0].n), {"k": [Box(n="a")]}, [{"k": [Box(n="a")]}], [{"k": [Box(n="bb")]}]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_guard_of_each_kind(kind: str) -> None:
    fn, first, same, different = KINDS[kind]
    count = CompileCounter()
    compiled = dynamo_nb.compile(fn, backend=count, dynamic=False)
    assert torch.equal(compiled(X, first), fn(X, first))
    before = count.frame_count
    for value in [first, *same]:
        assert torch.equal(compiled(X, value), fn(X, value))
        assert count.frame_count == before, "a needless recompile"
    entries = len(dynamo_nb.cache_entries(fn))
    for value in different:
        assert torch.equal(compiled(X, value), fn(X, value))
        assert len(dynamo_nb.cache_entries(fn)) > entries, "a guard is missing"
        entries = len(dynamo_nb.cache_entries(fn))
    assert torch.equal(compiled(X, first), fn(X, first))
    assert len(dynamo_nb.cache_entries(fn)) == entries


UNUSED = {
    "an argument never looked at": (lambda x, a: x + 1, [1, "a", None, X, [1]]),
    "an attribute never looked at": (lambda x, a: x + len(a.n), [Box(n="a", z=1), Box(n="a", z=2), Box(n="a")]),
    "items never looked at": (lambda x, a: x + a[0], [(X, 1), (X, 2), (X, "s")]),
}


@pytest.mark.parametrize("what", UNUSED)
def test_what_is_not_used_is_not_guarded(what: str) -> None:
    fn, values = UNUSED[what]
    count = CompileCounter()
    compiled = dynamo_nb.compile(fn, backend=count)
    for value in values:
        assert torch.equal(compiled(X, value), fn(X, value))
    assert count.frame_count == 1


def counted(source: str, **names):
    """A program in a namespace of its own, compiled; the namespace; the counter."""
    space = {"torch": torch, "nn": nn, **names}
    exec(source, space)
    count = CompileCounter()
    return dynamo_nb.compile(space["f"], backend=count, dynamic=False), space, count


def test_globals() -> None:
    f, space, count = counted("def f(x):\n    return x + len(NAME) + helper(x)\ndef helper(x):\n    return x * len(OTHER)\n", NAME="a", OTHER="b", UNUSED=1)
    assert f(X)[0].item() == 3
    space["UNUSED"], space["NEW"] = 2, 3
    f(X)
    assert count.frame_count == 1
    space["NAME"] = "abc"
    assert f(X)[0].item() == 5 and count.frame_count == 2
    space["OTHER"] = ""
    assert f(X)[0].item() == 4 and count.frame_count == 3
    space["helper"] = lambda x: x * 100
    assert f(X)[0].item() == 104 and count.frame_count == 4


def test_closure_cells() -> None:
    size = "a"

    def f(x):
        return x + len(size)

    count = CompileCounter()
    compiled = dynamo_nb.compile(f, backend=count)
    assert compiled(X)[0].item() == 2
    size = "abcd"
    assert compiled(X)[0].item() == 5 and count.frame_count == 2


def test_two_closures_over_one_code() -> None:
    def make(k):
        def f(x):
            return x + len(k)

        return f

    count = CompileCounter()
    one, two = (dynamo_nb.compile(make(k), backend=count) for k in ("a", "bcd"))
    assert [one(X)[0].item(), two(X)[0].item(), one(X)[0].item(), two(X)[0].item()] == [2, 4, 2, 4]
    assert count.frame_count == 2


def test_defaults() -> None:
    def f(x, k="a", *, w="b"):
        return x + len(k) + len(w)

    compiled = dynamo_nb.compile(f, backend="eager")
    assert compiled(X)[0].item() == 3
    f.__defaults__ = ("abc",)
    assert compiled(X)[0].item() == 5
    f.__kwdefaults__ = {"w": ""}
    assert compiled(X)[0].item() == 4
    assert compiled(X, "", w="")[0].item() == 1


def test_code_of_a_callee_replaced() -> None:
    def helper(x):
        return x + 1

    def other(x):
        return x - 1

    def f(x):
        return helper(x)

    compiled = dynamo_nb.compile(f, backend="eager")
    assert compiled(X)[0].item() == 2
    helper.__code__ = other.__code__
    assert compiled(X)[0].item() == 0


def test_methods_and_class_attributes_changed() -> None:
    class Model:
        scale = 2

        def work(self, x):
            return x * self.scale

    m = Model()
    compiled = dynamo_nb.compile(lambda x, m: m.work(x), backend="eager")
    assert compiled(X, m)[0].item() == 2
    Model.scale = 3
    assert compiled(X, m)[0].item() == 3
    Model.work = lambda self, x: x - self.scale
    assert compiled(X, m)[0].item() == -2
    m.work = lambda x: x * 10
    assert compiled(X, m)[0].item() == 10


def test_class_of_an_object_changed() -> None:
    class One:
        def work(self, x):
            return x + 1

    class Two:
        def work(self, x):
            return x + 2

    thing = One()
    compiled = dynamo_nb.compile(lambda x, t: t.work(x), backend="eager")
    assert compiled(X, thing)[0].item() == 2
    thing.__class__ = Two
    assert compiled(X, thing)[0].item() == 3


def test_parameters_replaced_and_changed_in_place() -> None:
    m = nn.Linear(3, 3)
    count = CompileCounter()
    compiled = dynamo_nb.compile(m, backend=count)
    compiled(X)
    with torch.no_grad():
        m.weight.zero_()
        m.weight.data = torch.ones(3, 3)
    assert torch.allclose(compiled(X), m(X)) and count.frame_count == 1
    m.weight = nn.Parameter(torch.zeros(3, 3))
    assert torch.allclose(compiled(X), m(X)) and count.frame_count == 1
    m.bias = None
    assert torch.allclose(compiled(X), m(X)) and count.frame_count == 2
    m.double()
    assert torch.allclose(compiled(X.double()), m(X.double())) and count.frame_count == 3
    m.weight.requires_grad_(False)
    assert compiled(X.double()).requires_grad is False and count.frame_count == 4


def test_layers_added_and_swapped() -> None:
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    compiled = dynamo_nb.compile(m, backend="eager")
    for change in (lambda: m.append(nn.Sigmoid()), lambda: m.__setitem__(0, nn.GELU()), lambda: m.__delitem__(1)):
        assert torch.allclose(compiled(X), m(X))
        change()
        assert torch.allclose(compiled(X), m(X))


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", dtype=torch.bfloat16)],
    ids=["no_grad", "inference_mode", "autocast"],
)
def test_global_modes(mode) -> None:
    def f(x):
        return x @ x

    x = torch.ones(2, 2, requires_grad=True)
    compiled = dynamo_nb.compile(f, backend="eager")
    for _ in range(2):
        for inside in (False, True):
            if inside:
                with mode():
                    got, want = compiled(x), f(x)
            else:
                got, want = compiled(x), f(x)
            assert (got.dtype, got.requires_grad, got.is_inference()) == (want.dtype, want.requires_grad, want.is_inference())
    assert len(dynamo_nb.cache_entries(f)) == 2


def test_default_dtype() -> None:
    compiled = dynamo_nb.compile(lambda x: x.sum() + torch.ones(2), backend="eager")
    assert compiled(X).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled(X).dtype is torch.float32


def test_aliasing_of_arguments() -> None:
    def f(a, b):
        a.append(1)
        return X + len(b)

    compiled = dynamo_nb.compile(f, backend="eager")
    one: list[int] = []
    assert compiled(one, [])[0].item() == 1
    shared: list[int] = []
    assert compiled(shared, shared)[0].item() == 2
    assert compiled([], [])[0].item() == 1


def test_entries_are_tried_most_recent_first_and_all_remain() -> None:
    def f(x, s):
        return x + len(s)

    compiled = dynamo_nb.compile(f, backend="eager")
    for s in ("a", "bb", "ccc", "a", "bb"):
        assert compiled(X, s)[0].item() == 1 + len(s)
    assert len(dynamo_nb.cache_entries(f)) == 3


def test_each_backend_has_entries_of_its_own() -> None:
    def f(x):
        return x + 1

    counts = [CompileCounter(), CompileCounter()]
    compiled = [dynamo_nb.compile(f, backend=c) for c in counts]
    for c in compiled * 2:
        assert c(X)[0].item() == 2
    assert [c.frame_count for c in counts] == [1, 1]


def test_reset_compiles_anew() -> None:
    count = CompileCounter()

    def f(x):
        return x + 1

    compiled = dynamo_nb.compile(f, backend=count)
    compiled(X)
    dynamo_nb.reset()
    assert dynamo_nb.cache_entries(f) == []
    compiled(X)
    compiled(X)
    assert count.frame_count == 2 and len(dynamo_nb.cache_entries(f)) == 1


def test_a_copy_of_the_code_has_no_entries() -> None:
    def f(x):
        return x + 1

    dynamo_nb.compile(f, backend="eager")(X)
    twin = types.FunctionType(f.__code__.replace(co_name="twin"), f.__globals__)
    assert dynamo_nb.cache_entries(f) and dynamo_nb.cache_entries(twin) == []
