# mypy: ignore-errors
"""The object protocol: attributes, descriptors, special methods, inheritance, metaclasses, dataclasses, enums, slots, __getattr__.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import operator
import typing

import pytest
import torch
from torch import nn

from tests.differ import Cases, differ

cases = Cases()


class Typed:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0) * 10

    def __set__(self, obj, value):
        setattr(obj, self.name, value + 1)


class Fallback:
    """A non-data descriptor: instances win."""

    def __get__(self, obj, owner=None):
        return "from class"


class Described:
    size = Typed()
    label = Fallback()

    def __init__(self, size):
        self.size = size

    @functools.cached_property
    def cached(self):
        self.computed = getattr(self, "computed", 0) + 1
        return self.size + 1

    @property
    def both(self):
        return self.size, self.label

    @both.setter
    def both(self, value):
        self.size, self.__dict__["label"] = value


@cases.add()
def descriptors(x):
    d = Described(2)
    first = d.size, d.label, d.cached, d.cached, d.computed
    d.both = 5, "own"
    return x + d.size, first, d.both, vars(d), Described.size.name, Described.label


class Dynamic:
    def __init__(self, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("make_"):
            return lambda v: (name[5:], v)
        raise AttributeError(f"no {name}")

    def __setattr__(self, name, value):
        super().__setattr__(name, ("set", value))

    def __delattr__(self, name):
        self.__dict__["gone_" + name] = True
        super().__delattr__(name)


@cases.add()
def attribute_hooks(x):
    d = Dynamic(a=1)
    d.b = x
    del d.b
    try:
        d.nothing  # noqa: B018
    except AttributeError as err:
        said = str(err)
    return x + d.a, d.make_it(3), said, vars(d), hasattr(d, "z"), getattr(d, "z", "default")


class Money:
    __slots__ = ("cents", "log")

    def __init__(self, cents, log=None):
        self.cents, self.log = cents, log if log is not None else []

    def __add__(self, other):
        if not isinstance(other, Money):
            return NotImplemented
        return Money(self.cents + other.cents, self.log)

    def __radd__(self, other):
        return Money(self.cents + other, self.log) if isinstance(other, int) else NotImplemented

    def __iadd__(self, other):
        self.cents += other
        return self

    def __eq__(self, other):
        self.log.append("eq")
        return isinstance(other, Money) and self.cents == other.cents

    def __hash__(self):
        return hash(self.cents)

    def __lt__(self, other):
        return self.cents < other.cents

    def __bool__(self):
        self.log.append("bool")
        return self.cents != 0

    def __len__(self):
        return 99

    def __call__(self, t):
        return t * self.cents

    def __getitem__(self, key):
        return key

    def __contains__(self, item):
        return item == self.cents

    def __neg__(self):
        return Money(-self.cents)

    def __index__(self):
        return self.cents

    def __format__(self, spec):
        return f"<{self.cents}{spec}>"

    def __repr__(self):
        return f"Money({self.cents})"


@cases.add()
def special_methods(x):
    log = []
    a, b = Money(3, log), Money(4, log)
    c = a + b
    d = 5 + a
    c += 1
    table = {a: "a", Money(3, log): "b"}
    out = [c.cents, d.cents, a == b, a != b, len(a), not a, 3 in a, (-a).cents, [10, 11, 12, 13][a], f"{a:!}", repr([a]), a[1:2], a[..., 0], len(table)]
    return a(x), out, log, sorted([b, a])[0] is a, max(a, b) is b, bool(Money(0))


class Root:
    made: typing.ClassVar[list] = []

    def __init_subclass__(cls, /, tag="none", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.tag = tag

    def __new__(cls, *args):
        self = super().__new__(cls)
        self.born = cls.__name__
        return self

    def __init__(self, v=0):
        self.v = v

    def work(self, t):
        return t + self.v

    @classmethod
    def build(cls, v):
        return cls(v * 2)

    @staticmethod
    def double(v):
        return v * 2


class Left(Root, tag="left"):
    def work(self, t):
        return super().work(t) * 2


class Right(Root, tag="right"):
    def work(self, t):
        return super().work(t) + 100


class Bottom(Left, Right, tag="bottom"):
    def work(self, t):
        return super().work(t) - super(Left, self).work(t) * 0.5


@cases.add()
def inheritance(x):
    b = Bottom.build(3)
    bound = b.work
    plain = Root.work
    return bound(x), plain(b, x), b.born, b.tag, [c.__name__ for c in type(b).__mro__], isinstance(b, (int, Right)), issubclass(Left, Root), Root.double(4), b.double(5)  # noqa: E501


class Registry(type):
    def __call__(cls, *args):
        obj = super().__call__(*args)
        obj.stamp = "by metaclass"
        return obj

    @property
    def nick(cls):
        return cls.__name__.lower()

    def __len__(cls):
        return 7


class Registered(metaclass=Registry):
    def __init__(self, n):
        self.n = n


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def __init__(self, s):
        self.s = s

    def area(self):
        return self.s**2


@cases.add()
def metaclasses(x):
    r = Registered(2)
    return Square(x).area(), r.n, r.stamp, Registered.nick, len(Registered), isinstance(r, Registered), type(Registered).__name__


@dataclasses.dataclass
class Config:
    width: int
    names: list = dataclasses.field(default_factory=list)
    extra: typing.Any = None
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        self.total = self.width * 2


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    a: int
    b: str = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Entry(typing.NamedTuple):
    name: str
    value: int = 3

    def scaled(self, k):
        return self.value * k


@cases.add()
def data_classes(x):
    c = Config(3, extra=x)
    d = dataclasses.replace(c, width=4)
    c.names.append("n")
    return c.extra + c.total, d.total, c == d, c.names, d.names, Key(1) < Key(2), Key(1) == Key(1), {Key(1): 2}[Key(1)], [f.name for f in dataclasses.fields(c)]


@cases.add()
def enums_and_named_tuples(x):
    e = Entry("n")
    name, value = e
    return x + Level.HIGH + Level["LOW"].value, Level(5) is Level.HIGH, Level.LOW < Level.HIGH, Level.HIGH.name, [v.name for v in Level], e.scaled(2), e._replace(value=9), e.name is name, value, e == ("n", 3), Entry._fields  # noqa: E501


@cases.breaks()
def flags(x):
    both = Flags.READ | Flags.WRITE
    return x + both.value, Flags.READ in both, both & Flags.WRITE, both.name


class MyDict(dict):
    def __missing__(self, key):
        return "missing " + key


class MyList(list):
    def total(self):
        return sum(self)

    def append(self, v):
        super().append(v * 2)


@cases.add()
def subclasses_of_containers(x):
    d = MyDict(a=1)
    items = MyList([1, 2])
    items.append(3)
    return x + items.total(), d["a"], d["q"], "q" in d, len(items), items[-1], isinstance(items, list)


class Model(nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.by_name = nn.ModuleDict({"act": nn.Tanh(), "drop": nn.Identity()})
        self.register_buffer("steps", torch.zeros(()))
        self.bias = nn.Parameter(torch.ones(4))
        self.seen = []

    def forward(self, x, *, twice=False):
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        for name, module in self.by_name.items():
            x = module(x) + len(name)
        self.steps += 1
        self.seen.append(tuple(x.shape))
        if self.training:
            x = x * 2
        return (x + self.bias) * self.scale * (2 if twice else 1), len(list(self.parameters())), [n for n, _ in self.named_children()]


def test_module_attributes_and_buffers() -> None:
    def run(model, x, twice):
        out = model(x, twice=twice)
        return out, model.steps, sum(p.numel() for p in model.parameters())

    torch.manual_seed(0)
    model, twin = Model(), Model().eval()
    x = torch.ones(2, 4)
    differ(run, (model, x, True), (model, x, False), (twin, x, False), (model, x, False), (twin, x, False), graphs=3, fullgraph=True)


@cases.add((torch.ones(3), Money(2)), (torch.ones(3), Money(2)), (torch.ones(3), Money(3)))
def objects_as_arguments(x, money):
    return x + money.cents


cases["objects_as_arguments"][2]["graphs"] = 2


@cases.add()
def introspection(x):
    a = Left(1)
    return x + callable(a.work), hasattr(a, "work"), type(a) is Left, a.__class__.__name__, a.work.__name__, a.work.__self__ is a, isinstance(x, torch.Tensor), operator.attrgetter("v")(a), operator.methodcaller("double", 2)(a), operator.itemgetter(1)([1, 2]), type(x).__name__  # noqa: E501


@cases.add()
def attributes_by_name(x):
    a = Root(1)
    setattr(a, "dyn" + "amic", x)
    delattr(a, "v")
    out = [hasattr(a, "v"), "dynamic" in vars(a), getattr(a, "dynamic") is x]  # noqa: B009
    a.__class__ = Left
    return x + 1, out, a.tag


cases["attributes_by_name"][2].update(graphs=None, fullgraph=False)


@cases.add()
def counters_and_friends(x):
    c = collections.Counter("abca")
    c.update(["a"])
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x + c["a"], c.most_common(1), chain["a"] + chain["b"]


cases["counters_and_friends"][2].update(graphs=None, fullgraph=False)


@pytest.mark.parametrize("name", cases)
def test_classes(name: str) -> None:
    cases.check(name)


@pytest.mark.parametrize("fn", [lambda x: (x + 1, id(x) == id(x)), lambda x: (x + 1, sorted(Left.__dict__), type(Left(1)).__dict__["work"].__name__)])
def test_looking_at_identity_and_namespaces(fn) -> None:
    differ(fn)
