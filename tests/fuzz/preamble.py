"""Module-level text of fuzz programs: globals, helper functions, classes, managers and modules.

In: the body text written so far. Out: only those chunks that it uses, directly or through another chunk. Used by `gen`.
"""

from __future__ import annotations

import re

IMPORTS = """import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import random

import torch
from torch import nn
import torch.nn.functional as F

CALL = [0]"""

# Each chunk is included if one of the names it defines is used.
CHUNKS: tuple[tuple[str, str], ...] = (
    ("LOG", "LOG = []"),
    ("G0", "G0 = 3"),
    ("G1", "G1 = [1, 2]"),
    ("G2", "G2 = {'a': 1, 'b': 2}"),
    ("G3", "G3 = 0.75"),
    ("GT", "GT = torch.ones(2) * 0.5"),
    ("UserError", "class UserError(Exception):\n    pass"),
    ("raises", "def raises(n):\n    if n % 2 == 0:\n        raise UserError(n)\n    return n"),
    ("helper", "def helper(x, k=2):\n    y = x * k\n    return y.tanh() if k > 1 else y - 1"),
    ("with_default", "def with_default(x, k=3, acc=[]):\n    acc.append(k % 7)\n    return x * len(acc) + acc[0]"),
    ("kwonly", "def kwonly(x, *, k=1, scale=-0.0):\n    return x * k + scale"),
    ("variadic", "def variadic(x, *rest, scale=1.0, **kw):\n    for r in rest:\n        x = x + r\n    return x * scale + len(kw)"),
    ("make_adder", "def make_adder(n):\n    def add(x):\n        return x + n\n    return add"),
    ("ADD_TWO", "ADD_TWO = make_adder(2)"),
    ("make_counted",
     "def make_counted():\n    count = 0\n    seen = []\n    def counted_call(x):\n        nonlocal count\n        count += 1\n"
     "        seen.append(count)\n        return x + count\n    return counted_call"),
    ("COUNTED", "COUNTED = make_counted()"),
    ("fact", "def fact(n):\n    return 1 if n <= 1 else n * fact(n - 1)"),
    ("fib", "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)"),
    ("rec", "def rec(x, n):\n    if n <= 0:\n        return x\n    return rec(x * 0.5, n - 1) + n"),
    ("parts", "def parts(x, n):\n    for i in range(n):\n        yield x * i + 1"),
    ("counted", "def counted(n):\n    i = 0\n    while i < n:\n        yield i * 2\n        i += 1\n    return i"),
    ("chained",
     "def chained(n):\n    r = yield from counted(n)\n    yield r\n    try:\n        yield 5\n    finally:\n        LOG.append('closed')"),
    ("compose", "def compose(*fns):\n    def run(x):\n        for fn in fns:\n            x = fn(x)\n        return x\n    return run"),
    ("deco",
     "def deco(fn):\n    @functools.wraps(fn)\n    def wrapper(*args, **kwargs):\n        LOG.append(fn.__name__)\n"
     "        return fn(*args, **kwargs) + 1\n    return wrapper"),
    ("decorated", "@deco\ndef decorated(x):\n    return x.sin()"),
    ("DISPATCH", "DISPATCH = {'neg': torch.neg, 'pos': helper}"),
    ("uses_global", "def uses_global(x):\n    return x + G0 * G1[0]"),
    ("bump_global", "def bump_global():\n    global G0\n    G0 += 1\n    G1.append(G0)"),
    ("hidden", "@opaque\ndef hidden(x, k=1):\n    LOG.append('hidden')\n    return x * k + 0.25"),
    ("hidden_int", "@opaque\ndef hidden_int(n):\n    LOG.append(n)\n    return n + 1"),
    ("hidden_append", "@opaque\ndef hidden_append(lst, n):\n    lst.append(n)\n    return len(lst)"),
    ("hidden_raise", "@opaque\ndef hidden_raise(n):\n    if n % 2 == 0:\n        raise UserError(n)\n    return n"),
    ("hidden_set", "@opaque\ndef hidden_set(obj, n):\n    obj.n = n\n    return obj"),
    ("hidden_global", "@opaque\ndef hidden_global(n):\n    global G0\n    G0 = n\n    G1.append(n)\n    return n"),
    ("hidden_inplace", "@opaque\ndef hidden_inplace(x):\n    LOG.append(x.dim())\n    x.add_(1)\n    return x"),
    ("breaks_inside",
     "def breaks_inside(x, n):\n    total = 0\n    for i in range(2):\n        x = x + i\n        total += hidden_int(i)\n"
     "        x = x * 2\n"
     "    return x + total + n"),
    ("hidden_parts", "def hidden_parts(x):\n    for i in range(2):\n        yield hidden(x, i) + i"),
    ("chatty", "def chatty(x, n):\n    y = x + n\n    print('chatty', n)\n    return y * 2"),
    ("NoisyManager",
     "class NoisyManager:\n    def __enter__(self):\n        hidden_int(0)\n        return 4\n"
     "    def __exit__(self, kind, value, tb):\n        LOG.append(kind is None)\n"
     "        hidden_int(1)"),
    ("Desc",
     "class Desc:\n    def __set_name__(self, owner, name):\n        self.slot = '_' + name\n"
     "    def __get__(self, obj, owner=None):\n        return self if obj is None else getattr(obj, self.slot, 3)\n"
     "    def __set__(self, obj, value):\n        setattr(obj, self.slot, value % 10)"),
    ("Box", """class Box:
    total = 0
    count = 1
    desc = Desc()
    def __init__(self, n, t, items=None):
        self.n = n
        self.t = t
        self.rate = 0.5
        self.items = [1, 2] if items is None else items
    def bump(self, k=1):
        self.n += k
        return self
    def scale(self, x):
        return x * self.n + self.rate
    def keep(self, x):
        self.t = x.sum()
        return x + self.t
    def odd(self, x):
        self.n += 1
        y = hidden(x * 2)
        self.items.append(self.n)
        return y + self.n
    def shift(self, x, by=1):
        self.items.append(by)
        return x + self.items[-1]
    @property
    def twice(self):
        return self.n * 2
    @twice.setter
    def twice(self, v):
        self.n = v // 2
    @classmethod
    def make(cls, n):
        cls.total += 1
        return cls(n, torch.ones(()))
    @staticmethod
    def half(x):
        return x * 0.5
    def __getattr__(self, name):
        if name.startswith('dynamic'):
            return len(name)
        raise AttributeError(name)
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i] if i < len(self.items) else self.n
    def __setitem__(self, i, v):
        self.items[i % len(self.items)] = v
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, v):
        return v in self.items
    def __bool__(self):
        return self.n > 0
    def __eq__(self, other):
        return isinstance(other, Box) and self.n == other.n
    def __hash__(self):
        return self.n % 100
    def __add__(self, k):
        return type(self)(self.n + k, self.t)
    def __iadd__(self, k):
        self.n += k
        return self
    def __mul__(self, x):
        return x * self.n
    def __matmul__(self, x):
        return x - self.n
    def __call__(self, x):
        return self.scale(x) + 1"""),
    ("SubBox", """class SubBox(Box):
    def __init__(self, n, t):
        super().__init__(n, t, [4])
        self.kind = 'sub'
    def scale(self, x):
        return super().scale(x) - 1"""),
    ("Slotted", "class Slotted:\n    __slots__ = ('a', 'b')\n    def __init__(self, a, b):\n        self.a = a\n        self.b = b"),
    ("Point", "@dataclasses.dataclass\nclass Point:\n    px: int\n    py: int = 1"),
    ("Logged", """class Logged:
    def __init__(self, log, tag, swallow=False):
        self.log = log
        self.tag = tag
        self.swallow = swallow
    def __enter__(self):
        self.log.append(('enter', self.tag))
        return self
    def __exit__(self, kind, value, tb):
        self.log.append(('exit', self.tag, None if kind is None else kind.__name__))
        return self.swallow"""),
    ("scoped", """@contextlib.contextmanager
def scoped(log, tag):
    log.append('in')
    try:
        yield tag
    finally:
        log.append('out')"""),
    ("Net", """class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.lin = nn.Linear(size, size)
        self.layers = nn.ModuleList([nn.Linear(size, size), nn.Tanh()])
        self.register_buffer('cnt', torch.zeros(()))
        self.weight = nn.Parameter(torch.full((size,), 0.5))
        self.calls = 0
        self.mode = 'a'
        self.hist = []
    def forward(self, x, flag=False):
        self.calls += 1
        x = self.lin(x)
        if flag:
            self.hist.append(self.calls)
            x = x * self.weight
        for layer in self.layers:
            x = layer(x)
        return x if self.mode == 'a' else x + self.cnt"""),
)  # fmt: skip


def needed(body: str) -> list[str]:
    """The chunks a body needs, in order of definition."""
    text = {name: chunk for name, chunk in CHUNKS}
    words = set(re.findall(r"[A-Za-z_]\w*", body))
    todo = [name for name in text if name in words]
    keep: set[str] = set()
    while todo:
        name = todo.pop()
        if name in keep:
            continue
        keep.add(name)
        todo += [other for other in set(re.findall(r"[A-Za-z_]\w*", text[name])) if other in text and other not in keep]
    return [chunk for name, chunk in CHUNKS if name in keep]
