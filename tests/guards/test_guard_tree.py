"""The tree: accessors, order, failures, errors, caching, and what it says."""

from __future__ import annotations

import collections
import gc
import sys
import threading
import types
import weakref
from typing import Any

import numpy
import pytest
import torch
from guard_helpers import assume, check, on, tree

from dynamo_nb import guards, native
from dynamo_nb.core import source as s
from dynamo_nb.guards import strict

V, W = s.LocalSource("v"), s.LocalSource("w")


class Box:
    cls_attr = 5

    def __init__(self, **attrs: Any) -> None:
        self.__dict__.update(attrs)


class Derived(Box):
    pass


class Odd(list):
    def __getitem__(self, i):
        raise AssertionError("overridden")


class OddDict(dict):
    def __getitem__(self, k):
        raise AssertionError("overridden")

    def __missing__(self, k):
        return 3


def _weak():
    return weakref.ref(Box)


READS = [
    (s.AttrSource(V, "a"), Box(a=3), Box(a=4)),
    (s.AttrSource(V, "a"), Box(a=3), Box()),
    (s.DictGetItemSource(s.InstanceDictSource(V), "a"), Box(a=3), Box(b=3)),
    (s.DictGetItemSource(s.TypeDictSource(s.TypeSource(V)), "cls_attr"), Box(), 3),
    (s.DictGetItemSource(s.TypeDictSource(s.TypeMROSource(s.TypeSource(V), 1)), "cls_attr"), Derived(), Box()),
    (s.GetItemSource(V, 1), (1, 3), (1,)),
    (s.GetItemSource(V, 1), [1, 3], [1, 4]),
    (s.GetItemSource(V, -1), [1, 3], []),
    (s.GetItemSource(V, 0), Odd([3]), Odd([])),
    (s.GetItemSource(V, 1), collections.deque([1, 3]), collections.deque([1])),
    (s.GetItemSource(V, 0), (3,), {0: 3}),
    (s.DictGetItemSource(V, "k"), {"k": 3}, {"j": 3}),
    (s.DictGetItemSource(V, "k"), OddDict(k=3), OddDict()),
    (s.DictGetItemSource(V, (1, "x")), {(1, "x"): 3}, {(1, "y"): 3}),
    (s.DictGetItemSource(V, 0), {0: 3}, [3]),
    (s.DictKeySource(V, 1), {1: 0, 3: 0}, {3: 0, 1: 0}),
    (s.DictValueSource(V, 1), {1: 0, 2: 3}, {1: 3}),
    (s.DictKeySource(V, 1), collections.OrderedDict([(1, 0), (3, 0)]), collections.OrderedDict()),
    (s.DictValueSource(V, 0), collections.OrderedDict([(1, 3)]), []),
    (s.CellContentsSource(V), types.CellType(3), types.CellType()),
    (s.CellContentsSource(V), types.CellType(3), 3),
    (s.AttrSource(s.WeakRefCallSource(V), "cls_attr"), _weak(), 3),
    (s.NNModuleSource(V), 3, 4),
    (s.TensorPropertySource(V, "size", 1), torch.ones(1, 3), torch.ones(1)),
    (s.TensorPropertySource(V, "stride", 0), torch.ones(1, 3), torch.ones(1, 4)),
    (s.TensorPropertySource(V, "storage_offset", -1), torch.ones(9)[3:], torch.ones(3)),
    (s.TensorPropertySource(s.NumpyTensorSource(V), "size", 0), numpy.ones(3), numpy.ones(4)),
]


@pytest.mark.parametrize("source,good,bad", READS, ids=[f"{i}-{r[0].name}" for i, r in enumerate(READS)])
def test_every_source_is_read_the_same_way_natively_and_in_python(source, good, bad):
    expected = 5 if "cls_attr" in source.name else 3
    wrapper = tree(assume(source, "EQUALS_MATCH", expected))
    for _ in range(2):
        assert check(wrapper, good) and not check(wrapper, bad)
    assert wrapper.check({"v": good}, {}) and not wrapper.check({"v": bad}, {})
    assert not wrapper.check({}, {})
    assert guards.resolve(source, wrapper.scope({"v": good}, {})) == expected


def test_globals_builtins_and_modules():
    wrapper = tree(assume(s.GlobalSource("name"), "EQUALS_MATCH", 3))
    space: dict[str, Any] = {"name": 3}
    assert check(wrapper, space=space)
    space["other"] = 1
    assert check(wrapper, space=space)
    space["name"] = 4
    assert not check(wrapper, space=space) and wrapper.reason((), space) == "G['name'] == 3 no longer holds: it is 4"
    del space["name"]
    assert not check(wrapper, space=space) and "can't be read any more" in wrapper.reason((), space)
    builtin = tree(assume(s.BuiltinSource("len"), "ID_MATCH", len))
    assert check(builtin, space=space)
    space["len"] = len
    assert not check(builtin, space=space)
    module = tree(assume(s.AttrSource(s.ModuleSource("math"), "pi"), "EQUALS_MATCH", __import__("math").pi))
    assert check(module) and not check(tree(assume(s.ModuleSource("no.such.module"), "TYPE_MATCH", type(sys))))


def test_globals_default_to_the_callers():
    wrapper = tree(assume(s.GlobalSource("V"), "TYPE_MATCH", s.LocalSource))
    assert wrapper.check({}) and wrapper.root.check({})


def test_free_variables_and_cells():
    cell = types.CellType(3)
    assumptions = (
        assume(s.LocalSource("n"), "EQUALS_MATCH", 3),
        assume(s.LocalCellSource("n"), "TYPE_MATCH", types.CellType),
        assume(s.CellContentsSource(s.LocalCellSource("n")), "EQUALS_MATCH", 3),
    )
    wrapper = tree(*assumptions, free=("m", "n"))
    closure = (types.CellType(), cell)
    assert check(wrapper, closure=closure)
    assert wrapper.check({"n": 3}, {}) and not wrapper.check({"n": 4}, {})
    cell.cell_contents = 4
    assert not check(wrapper, closure=closure)
    del cell.cell_contents
    assert not check(wrapper, closure=closure) and not check(wrapper, closure=None)
    with pytest.raises(guards.GuardBuildError, match="neither an argument nor a free variable"):
        tree(assume(s.LocalSource("zz"), "TYPE_MATCH", int))


def test_failing_children_move_forward_and_parents_stay_first():
    wrapper = tree(assume(V, "EQUALS_MATCH", 1), assume(W, "EQUALS_MATCH", 2))
    root = wrapper.root
    sources = lambda: [m.get_source() for m in root.get_child_managers()]  # noqa: E731
    assert sources() == ["L['v']", "L['w']"]
    assert not root.check({"v": 1, "w": 9})
    assert sources() == ["L['w']", "L['v']"] and [m.fail_count() for m in root.get_child_managers()] == [1, 0]
    for _ in range(2):
        assert not root.check({"v": 9, "w": 2})
    assert sources() == ["L['v']", "L['w']"]
    first = root.get_child_managers()[0]
    assert first.get_leaf_guards()[0][0] == "EQUALS_MATCH" and first.get_accessor() == "LocalGuardAccessor(key='v', index=0)"
    assert len(root.get_accessors()) == 2


def test_type_is_checked_before_anything_is_read_from_the_value():
    touched = []

    class Trap:
        @property
        def a(self):
            touched.append(1)
            return 1

    wrapper = tree(assume(s.AttrSource(V, "a"), "EQUALS_MATCH", 1), assume(V, "TYPE_MATCH", Box))
    with strict.enabled(False):
        wrapper.root.set_observer(None)
        for _ in range(5):
            assert not wrapper.root.check({"v": Trap()})
    assert touched == []


def test_accessor_that_raises_is_a_miss_and_leaves_no_error():
    class Bad:
        @property
        def a(self):
            raise RuntimeError("no")

    wrapper = tree(assume(s.AttrSource(V, "a"), "EQUALS_MATCH", 1))
    assert not check(wrapper, Bad())
    assert "RuntimeError: no" in wrapper.reason((Bad(),), {})


def test_keyboard_interrupt_is_not_swallowed():
    class Stops:
        @property
        def a(self):
            raise KeyboardInterrupt

    wrapper = tree(assume(s.AttrSource(V, "a"), "EQUALS_MATCH", 1))
    with pytest.raises(KeyboardInterrupt):
        wrapper.root.check({"v": Stops()})


def test_guard_that_changes_the_tree_or_its_values_while_it_runs():
    box = Box(items={"k": [1, 2]})

    def callback(value):
        box.items.clear()
        box.items["k"] = [1, 2]
        box.__dict__["items"] = dict(box.items)
        gc.collect()
        with pytest.raises(RuntimeError, match="being checked"):
            wrapper.root.add_leaf("X", "", ("nan",))
        nested.append(len(nested))
        return len(nested) > 3 or wrapper.root.check({"v": box})

    nested: list[int] = []
    items = s.DictGetItemSource(s.InstanceDictSource(V), "items")
    with strict.enabled(False):
        wrapper = tree(
            assume(items, "CALLBACK", callback, "callback"),
            assume(s.GetItemSource(s.DictGetItemSource(items, "k"), 1), "EQUALS_MATCH", 2),
            assume(s.GetItemSource(s.DictGetItemSource(items, "k"), 0), "EQUALS_MATCH", 1),
        )
    for _ in range(3):
        nested.clear()
        assert wrapper.root.check({"v": box}) and len(nested) == 4


def test_dict_values_are_never_stale():
    """Dict items are remembered by the dict's version: every way to change a dict must be noticed."""
    wrapper = tree(
        assume(s.DictGetItemSource(V, "k"), "EQUALS_MATCH", 1), assume(s.DictGetItemSource(s.InstanceDictSource(W), "k"), "EQUALS_MATCH", 1)
    )

    def set_attr(d, b, v):
        b.k = v

    def store(d, b, v):
        d["k"] = v
        b.__dict__["k"] = v

    ways = [
        store,
        lambda d, b, v: (d.update(k=v), set_attr(d, b, v)),
        lambda d, b, v: (d.pop("k"), d.setdefault("k", v), setattr(b, "k", v)),
        lambda d, b, v: (d.clear(), d.__ior__({"k": v}), b.__dict__.clear(), b.__dict__.update(k=v)),
        lambda d, b, v: (dict.__setitem__(d, "k", v), object.__setattr__(b, "k", v)),
    ]
    data, box = {"k": 1, "z": 0}, Box(k=1)
    for way in ways:
        for _ in range(30):
            assert check(wrapper, data, box)
            way(data, box, 2)
            assert not check(wrapper, data, box)
            way(data, box, 1)
    for _ in range(200):  # new dicts at old addresses
        assert not check(wrapper, {"k": 2}, box) and check(wrapper, {"k": 1}, box) and not check(wrapper, {"j": 1}, box)


def test_instances_without_a_dict():
    class Slots:
        __slots__ = ("a",)

    wrapper = tree(assume(s.InstanceDictSource(V), "DICT_CONTAINS", "a", False))
    assert check(wrapper, Box()) and not check(wrapper, Slots()) and not check(wrapper, 3)
    assert check(wrapper, Box.__new__(Box))


def test_equal_assumptions_are_checked_once_and_different_ones_all():
    wrapper = tree(
        assume(V, "DICT_CONTAINS", "a", True), assume(V, "DICT_CONTAINS", "a", True), assume(V, "DICT_CONTAINS", "b", True),
        assume(s.NNModuleSource(V), "DICT_CONTAINS", "b", True),
    )  # fmt: skip
    assert len(wrapper.guards) == 2 and len(wrapper.root.get_child_managers()) == 1
    assert len(tree(assume(V, "EQUALS_MATCH", (1,)), assume(V, "EQUALS_MATCH", (True,))).guards) == 2


def test_texts():
    lin = torch.nn.Linear(2, 2)
    weight = s.DictGetItemSource(s.DictGetItemSource(s.InstanceDictSource(s.NNModuleSource(V)), "_parameters"), "weight")
    names = ("v", "w", "u")
    assumptions = [
        assume(weight, "TENSOR_MATCH", guards.TensorMeta.of(lin.weight)),
        assume(W, "EQUALS_MATCH", 3),
        assume(None, "GLOBAL_STATE"),
    ]
    wrapper = guards.build(assumptions, names, (), guards.Scope({"v": lin, "w": 3}, {}, {}), "forward")
    text = str(wrapper)
    assert text.startswith("TREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- GLOBAL_STATE: check_global_state() against {")
    assert "| +- GuardManager: source=L['w'], accessed_by=LocalGuardAccessor(key='w', index=1), type=<class 'int'>" in text
    assert "| | +- EQUALS_MATCH: L['w'] == 3  # user.py:7" in text
    assert "DictGetItemGuardAccessor('weight'), type=<class 'torch.nn.parameter.Parameter'>" in text
    assert "check_tensor(L['v'].__dict__['_parameters']['weight'], Parameter, " in text
    compile(wrapper.python(), "guards", "exec")
    records = wrapper.records()
    assert [(r.kind, r.source) for r in records] == [
        ("GLOBAL_STATE", ""),
        ("TENSOR_MATCH", weight.name.replace("NN", "")),
        ("EQUALS_MATCH", "L['w']"),
    ]
    assert records[2].location is not None and (records[2].location.file, records[2].location.line) == ("user.py", 7)
    assert 0 < wrapper.latency_us((lin, 3, None), {}) < 1e6
    assert tree().python() == "def guards(L, G):\n    return True\n" and check(tree())


def test_strict_mode_finds_forms_that_differ():
    wrapper = on("EQUALS_MATCH", 3)
    object.__setattr__(wrapper.guards[0], "kept", guards.content.pattern(4))
    with pytest.raises(guards.GuardFormsDisagree, match="native tree says True"):
        wrapper.root.check({"v": 3})
    wrapper.guards[0].kind.__class__.reason, original = (lambda *a: None), wrapper.guards[0].kind.__class__.reason  # type: ignore[method-assign]
    try:
        with pytest.raises(guards.GuardFormsDisagree, match="failure reason says None"):
            wrapper.root.check({"v": 3})
    finally:
        wrapper.guards[0].kind.__class__.reason = original  # type: ignore[method-assign]


def test_checks_leak_nothing():
    class Thing:
        pass

    thing = Thing()
    box = Box(a=thing, d={"k": thing}, t=(thing,))
    wrapper = tree(
        assume(V, "TYPE_MATCH", Box), assume(s.AttrSource(V, "a"), "ID_MATCH", thing), assume(s.AttrSource(V, "a"), "NO_HASATTR", "zz"),
        assume(s.DictGetItemSource(s.AttrSource(V, "d"), "k"), "OBJECT_ALIASING", s.GetItemSource(s.AttrSource(V, "t"), 0), True),
        assume(s.AttrSource(V, "d"), "DICT_KEYS", ("k",)), assume(W, "SEQUENCE_LENGTH", 1, list),
    )  # fmt: skip
    wrapper.root.set_observer(None)
    good, bad, values = (box, [thing], None), (box, [], None), (Box(), [thing], None)
    before = [sys.getrefcount(o) for o in (thing, box, Box, wrapper.root)]
    for _ in range(2000):
        assert (
            wrapper.root.check_flat(good, {}, {})
            and not wrapper.root.check_flat(bad, {}, {})
            and not wrapper.root.check_flat(values, {}, {})
        )
    assert [sys.getrefcount(o) for o in (thing, box, Box, wrapper.root)] == before


def test_trees_are_freed():
    gone = []
    for _ in range(3):
        wrapper = on("EQUALS_MATCH", 3)
        gone.append(weakref.ref(wrapper))
        child = wrapper.root.get_child_managers()[0]
        del wrapper
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    with pytest.raises(RuntimeError, match="its root is gone"):
        child.add_leaf("X", "", ("nan",))


def test_threads_check_one_tree():
    with strict.enabled(False):
        wrapper = tree(
            assume(s.AttrSource(V, "a"), "EQUALS_MATCH", 3), assume(W, "EQUALS_MATCH", 1), assume(V, "CALLBACK", lambda v: True, "slow")
        )
    wrong: list[object] = []

    def work(n):
        mine = Box(a=3)
        for i in range(2000):
            good = i % 3 != n
            if wrapper.root.check_flat((mine, 1 if good else 2, None), {}, {}) is not good:
                wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


@pytest.mark.parametrize(
    "form",
    [
        (),
        ("nope",),
        ("type",),
        ("type", 1, 2),
        ("id", 10**9),
        ("equals", object()),
        ("tensor", ()),
        ("shape", (), (), -1),
        ("length", "x", None),
    ],
)
def test_bad_native_forms_are_refused(form):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        native.RootGuardManager().add_leaf("X", "", form)


def test_the_root_check_is_a_builtin():
    root = native.RootGuardManager()
    assert not isinstance(type(root).check, types.FunctionType) and root.check({})
    with pytest.raises(TypeError):
        root.check(3)
    with pytest.raises(TypeError):
        native.GuardManager()
    with pytest.raises(ValueError, match="unknown accessor"):
        root.child("nope", None, "", "")
