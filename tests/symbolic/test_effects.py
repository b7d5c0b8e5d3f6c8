# mypy: ignore-errors
"""What a program changes: attributes, items, globals, nonlocals, cells, containers; aliases, order, and what is left when it raises.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import types

import pytest
import torch

import dynamo_nb
from tests.differ import Cases, differ

cases = Cases()
X = torch.arange(3.0)


class Box:
    kind = "class"

    def __init__(self, **values):
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("a", "b")


class Watched:
    """Every assignment is logged."""

    log: list = []  # noqa: RUF012

    def __setattr__(self, name, value):
        Watched.log.append(("set", name, value if isinstance(value, int) else "tensor"))
        super().__setattr__(name, value)

    def __delattr__(self, name):
        Watched.log.append(("del", name))
        super().__delattr__(name)


COUNTER = 0
TABLE = {"n": 0}
ITEMS = [1]
LATE = None


def world():
    """The module's globals as they were."""
    global COUNTER, LATE
    COUNTER, LATE = 0, None
    TABLE.clear()
    TABLE["n"] = 0
    ITEMS[:] = [1]
    Box.kind = "class"
    Watched.log[:] = []
    globals().pop("FRESH", None)
    return lambda: (COUNTER, LATE, TABLE, ITEMS, Box.kind, Watched.log, globals().get("FRESH"))


class World:
    """Looks at the module's globals when a snapshot is taken."""

    def __init__(self):
        self.look = world()

    @property
    def __dict__(self):
        return {"seen": self.look()}


@cases.add((X, Box(n=1, t=X)), (X, Box(n=1, t=X)), (X, Box(n=2, t=X)), graphs=None)
def attributes(x, box):
    box.n += 1
    box.n *= 2
    box.t = x * box.n
    box.new = "a"
    box.other = box
    del box.new
    box.new = [box.t]
    return box.t + box.n, box.kind


@cases.add((X, Box()), (X, Box(kind="own")), graphs=None)
def shadowing_a_class_attribute(x, box):
    before = box.kind
    box.kind = "instance"
    after = box.kind
    return x + 1, before, after, box.kind, "kind" in vars(box)


@cases.add((X, Slotted()))
def slots(x, s):
    s.b = x + 1
    s.a = s.b
    s.b = 3
    return s.a * s.b, hasattr(s, "a")


@cases.add((X,), (X,), state=World, graphs=None)
def watched_attributes(x):
    w = Watched()
    w.a = 1
    w.b = x * 2
    w.a = 3
    del w.a
    return w.b + 1, len(Watched.log)


@cases.add((X,), (X,), (X,), state=World, graphs=None)
def global_variables(x):
    global COUNTER, LATE, FRESH
    COUNTER += 1
    y = x * COUNTER
    LATE = y
    FRESH = [y]
    TABLE["n"] += 1
    TABLE[COUNTER] = ITEMS
    ITEMS.append(COUNTER)
    return y + len(ITEMS)


@cases.breaks((X,), (X,), state=World)
def global_variables_around_a_break(x):
    global COUNTER, LATE
    COUNTER += 1
    LATE = x + COUNTER
    print(COUNTER, TABLE, ITEMS)
    COUNTER += 10
    ITEMS.append(LATE)
    del TABLE["n"]
    with contextlib.suppress(NameError):
        del globals()["FRESH"]  # noqa
    return x * COUNTER


cases["global_variables_around_a_break"][2]["state"] = World


@cases.add((X, [1, 2, 3]), (X, [1, 2, 3]))
def lists(x, items):
    items.append(x + 1)
    items[0] = items
    items.pop(1)
    items.insert(0, "first")
    items += [4, 5]
    items[1:2] = ["a", "b"]
    del items[-1]
    items.reverse()
    return x * 2, len(items)


@cases.add((X, {"a": 1, "b": 2}), (X, {"a": 1, "b": 2}))
def dicts(x, table):
    table["c"] = x + 1
    table.update(d=4, a=table.pop("b"))
    del table["a"]
    table["a"] = "last"
    table.setdefault("e", []).append(table)
    return x * 2, list(table)


@cases.add((X, collections.deque([1, 2], maxlen=3), {5, 6}, collections.OrderedDict(a=1, b=2), collections.defaultdict(list)), graphs=1)
def other_containers(x, queue, names, ordered, groups):
    queue.append(x)
    queue.appendleft(0)
    names |= {7}
    names.discard(5)
    ordered.move_to_end("a")
    groups["k"].append(1)
    return x + 1, len(queue), 7 in names


def both():
    shared = [1]
    return X, {"left": shared, "right": shared}


@cases.add(both, (X, {"left": [1], "right": [1]}), graphs=2)
def aliases_in_containers(x, pair):
    pair["left"].append(2)
    pair["right"].append(3)
    pair["both"] = pair["left"]
    return x + len(pair["left"]), pair["left"] is pair["right"]


def same_box():
    box = Box(v=1)
    return X, box, box


@cases.add(same_box, (X, Box(v=1), Box(v=1)), same_box, graphs=None)
def aliased_objects(x, a, b):
    a.v = x + 1
    out = b.v
    b.v = 5
    return x + 1, out, a.v


def same_tensor():
    t = torch.ones(3)
    return t, t


def overlapping():
    t = torch.arange(4.0)
    return t[:3], t[1:]


@cases.add(same_tensor, (torch.ones(3), torch.ones(3)), overlapping, same_tensor, graphs=None)
def aliased_tensors(a, b):
    a.add_(1)
    b.mul_(2)
    return a + b, a is b


@cases.add((torch.arange(4.0),), (torch.arange(4.0),))
def tensors_in_place(x):
    view = x[1:]
    view += 1
    x[0] = view[0]
    other = x.view(2, 2).t()
    other.mul_(2)
    x.unsqueeze_(0)
    return view, other, x, x.view(-1)[2:]


@cases.add((torch.arange(4.0),))
def operators_with_targets(x):
    out = torch.empty(4)
    torch.add(x, 1, out=out)
    torch.nn.functional.relu(x, inplace=True)
    x.copy_(out).clamp_(max=3)
    x.grad = None
    return out, x.fill_(2) is x


@cases.add((torch.arange(4.0, requires_grad=True),), graphs=None)
def attributes_of_tensors(x):
    x.note = "hi"
    y = x * 2
    y.tag = [1]
    return y.tag, y, x.note


cases["attributes_of_tensors"][2]["fullgraph"] = False


@cases.add((X, []))
def order_over_several_objects(x, log):
    class_free = types.SimpleNamespace(log=log)
    for name in "ab":
        class_free.log.append(name)
        log.append((name, len(class_free.log)))
    log[0] = class_free.log[-1]
    return x + len(log)


cases["order_over_several_objects"][2].update(graphs=None, fullgraph=False)


def make_counter():
    count, history = 0, []

    def bump(x, fail=False):
        nonlocal count
        count += 1
        history.append(count)
        y = x + count
        if fail:
            count += 100
            raise ValueError(f"failed at {count}")
        return y, history

    return bump


def test_cells_of_the_compiled_function() -> None:
    eager, compiled = make_counter(), dynamo_nb.compile(make_counter(), backend="eager")
    for fail in (False, False, True, False, True, False):
        results = []
        for fn in (eager, compiled):
            try:
                y, history = fn(X, fail)
                results.append((y.tolist(), list(history)))
            except ValueError as err:
                results.append(str(err))
        assert results[0] == results[1]


@pytest.mark.parametrize("name", cases)
def test_effects(name: str) -> None:
    cases.check(name)


def fail_after_effects(x, box, log, where):
    log.append("start")
    box.n = 1
    y = x + 1
    if where == "raise":
        raise KeyError(where)
    x.add_(10)
    box.y = y
    if where == "attribute":
        y.missing  # noqa: B018
    log.append({"y": y})
    if where == "index":
        return log[len(log)]
    global COUNTER
    COUNTER = COUNTER + 5
    box.n = 2
    if where == "shape":
        return torch.cat([y, y.unsqueeze(0)])
    if where == "type":
        return y + "text"
    if where == "zero":
        return y.shape[0] // (y.dim() - 1)
    try:
        log.append("try")
        return {}[where]
    finally:
        box.n = 3
        log.append("finally")


@pytest.mark.parametrize("where", ["raise", "attribute", "index", "shape", "type", "zero", "key"])
def test_effects_before_an_exception(where: str) -> None:
    call = (torch.ones(2), Box(n=0), [], where)
    differ(fail_after_effects, call, call, state=World)


def fail_in_the_graph(x, index, box, log):
    log.append("a")
    box.n += 1
    y = x * 2
    picked = y[index]
    log.append("b")
    box.n += 1
    return picked + box.n


def test_effects_when_the_graph_raises() -> None:
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    calls = [(torch.ones(3), index, Box(n=0), []) for index in (good, bad, good, bad)]
    differ(fail_in_the_graph, *calls, trace=True)
    counts = dynamo_nb.utils.counters["run_failed"]
    assert sum(counts.values()) >= 1


def test_input_is_untouched_when_the_graph_raises_midway() -> None:
    def step(x, index):
        x.add_(1)
        y = torch.ones(3)[index]
        x.add_(y.sum())
        return x

    differ(step, (torch.zeros(2), torch.tensor([1])), (torch.zeros(2), torch.tensor([5])), (torch.zeros(2), torch.tensor([2])))


def test_effects_are_seen_by_a_traced_callback_in_order() -> None:
    log: list[str] = []

    class Noisy:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            log.append(f"{self.name}=={other.name}")
            return self.name == other.name

        def __hash__(self):
            log.append(f"hash {self.name}")
            return 1

    def go(x, a, b):
        table = {a: 1}
        found = b in table
        return x + len(table), found, [a] == [b]

    def state():
        log.clear()
        return log

    differ(go, (X, Noisy("p"), Noisy("q")), (X, Noisy("p"), Noisy("p")), state=state)


def test_module_level_state_of_another_module() -> None:
    module = types.ModuleType("some_settings")
    module.level = 1
    sys.modules["some_settings"] = module

    def go(x):
        import some_settings

        some_settings.level += 1
        return x * some_settings.level

    def state():
        module.level = 1
        return module.__dict__

    try:
        differ(go, (X,), (X,), state=lambda: (state(), module)[1].__dict__.setdefault("box", Box(m=1)))
        assert module.level == 3
    finally:
        del sys.modules["some_settings"]


def modes_then_failure(x, index, log):
    with torch.no_grad():
        try:
            y = (x * 2)[index]
            y = False - y
        except (RuntimeError, IndexError):
            log.append(torch.is_grad_enabled())
    log.append(torch.is_grad_enabled())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x[index], torch.is_autocast_enabled("cpu")


def test_modes_are_put_back_when_the_graph_raises() -> None:
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    differ(modes_then_failure, *((torch.ones(3), index, []) for index in (good, bad, good, bad)))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
