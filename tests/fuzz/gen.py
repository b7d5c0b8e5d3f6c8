"""Writes one random program for a seed.

In: a seed (and an attempt number). Out: a `Program`. The entry function's arguments are made here: which there are, and
how their values change from call to call (sizes, dtypes, numbers, lengths, aliasing, attributes, globals), which is
what exercises guards, automatic dynamic shapes and recompiles. Called by `runner.make_program`.
"""

from __future__ import annotations

from . import exprs, stmts_data, stmts_flow, tensors
from .core import BREAKY, FAMILIES, Gen
from .preamble import IMPORTS, needed
from .program import Program
from .scope import BOOL, FLOAT, INT, STR, Dim, Ty, Var, dict_of, list_of, tensor

WRITERS = (exprs, tensors, stmts_data, stmts_flow)
BREAKY_SHARE = 0.36
SIZES = ((8, 6), (12, 3), (18, 2), (26, 1))


def choose_families(g: Gen) -> None:
    """Switch on a random part of the language."""
    g.families = {f for f in FAMILIES if g.chance(0.45)}
    if g.chance(BREAKY_SHARE):
        g.families |= set(g.rng.sample(BREAKY, g.pick([1, 1, 1, 2])))
    g.backward = g.chance(0.12)
    if g.backward:
        g.families -= {"inplace", "setitem", "alias", "dtype", "op_error"}
    g.fixed = g.pick([3, 3, 4, 2])


def choose_args(g: Gen) -> dict[str, Ty]:
    """The entry's parameters; `x` is always an (N, fixed) float tensor."""
    m = g.fixed
    args: dict[str, Ty] = {"x": tensor(("N", m))}
    shapes: list[tuple[Dim, ...]] = [("N", m), (m,), ("N",), (), (1, m), (2, 3), ("N", m)]
    if g.chance(0.6):
        args["y"] = tensor(g.pick(shapes))
    pool: list[tuple[str, Ty, float]] = [
        ("n", INT, 0.6), ("a", FLOAT, 0.4), ("flag", BOOL, 0.3), ("s", STR, 0.2), ("idx", tensor(("N",), "i"), 0.12),
        ("lst", list_of(INT), 0.35 if "list" in g.families else 0.0), ("ts", list_of(tensor(("N", m))),
                                                                       0.2 if "list" in g.families else 0.0),
        ("d", dict_of(INT), 0.3 if "dict" in g.families else 0.0), ("dt", dict_of(tensor((m,))), 0.2 if "dict" in g.families else 0.0),
        ("se", Ty("set"), 0.3 if "set" in g.families else 0.0), ("tup", Ty("tuple", (INT, tensor((m,)))),
                                                                 0.25 if "tuple" in g.families else 0.0),
        ("opt", Ty("opt", (tensor((m,)),)), 0.8 if "opt" in g.families else 0.0), ("box", Ty("obj", name="Box"),
                                                                                   0.6 if "class" in g.families else 0.0),
        ("net", Ty("module", name="Net"), 0.8 if "module" in g.families else 0.0),
        ("unused", INT, 0.15 if "extrainput" in g.families else 0.0),
        ("slo", Ty("obj", name="Slotted"), 0.5 if "slots" in g.families else 0.0), ("lst2", list_of(INT),
                                                                                    0.3 if "alias" in g.families else 0.0),
    ]  # fmt: skip
    for name, ty, p in pool:
        if p and g.chance(p):
            args[name] = ty
    return args


class Inputs:
    """Writes `make_state` and `call_args`: the arguments of every call."""

    def __init__(self, g: Gen, args: dict[str, Ty], calls: int) -> None:
        self.g, self.args, self.calls = g, args, calls
        self.sizes = [g.pick([2, 3, 4, 5])]
        for _ in range(calls - 1):
            self.sizes.append(self.sizes[-1] if g.chance(0.5) else g.pick([1, 2, 3, 4, 5, 6, 7]))
        self.dtypes = ["float32"] * calls
        if "dtype" in g.families and g.chance(0.6):
            self.dtypes[g.rng.randrange(calls)] = g.pick(["float64", "float64", "bfloat16"])
        self.state: dict[str, str] = {}
        self.base: dict[str, str] = {}

    def tensor_text(self, ty: Ty, k: int) -> str:
        """`mk(shape, dtype, seed)` for call k."""
        dims = tuple(self.sizes[k] if d == "N" else d for d in ty.shape)
        dtype = {"f": self.dtypes[k], "i": "int64", "b": "bool"}[ty.dtype]
        text = f"mk({dims!r}, {dtype!r}, {self.g.rng.randrange(1000)})"
        return text + ".requires_grad_()" if self.g.backward and ty.dtype == "f" and self.g.chance(0.7) else text

    def literal(self, ty: Ty, k: int) -> str:
        """A fresh value of a type for call k."""
        g = self.g
        if ty.kind == "tensor":
            return self.tensor_text(ty, k)
        if ty.kind == "int":
            return g.pick(["0", "1", "2", "3", "5", "-2", "7", "4", "12"])
        if ty.kind == "float":
            return g.pick(["0.5", "-0.0", "0.0", "1.5", "-2.25", "float('nan')", "3.0", "float('inf')"])
        if ty.kind == "bool":
            return g.pick(["True", "False"])
        if ty.kind == "str":
            return g.pick(["'a'", "'b'", "'abc'", "''", "'Zed'"])
        if ty.kind == "list":
            return "[" + ", ".join(self.literal(ty.elems[0], k) for _ in range(g.rng.randint(1, 4))) + "]"
        if ty.kind == "dict":
            pairs = [f"'a': {self.literal(ty.elems[0], k)}", f"'b': {self.literal(ty.elems[0], k)}"]
            if g.chance(0.3):
                pairs.append(f"'c': {self.literal(ty.elems[0], k)}")
            g.rng.shuffle(pairs)
            return "{" + ", ".join(pairs) + "}"
        if ty.kind == "set":
            return "{" + ", ".join(str(g.rng.randrange(6)) for _ in range(3)) + "}"
        if ty.kind == "tuple":
            return "(" + "".join(self.literal(e, k) + ", " for e in ty.elems) + ")"
        if ty.kind == "opt":
            return "None" if g.chance(0.5) else self.literal(ty.elems[0], k)
        if ty.kind == "module":
            return f"Net({g.fixed})"
        return self.object_text(ty)

    def object_text(self, ty: Ty) -> str:
        """A constructor call for a user object."""
        n = self.g.pick(["1", "2", "3", "-1"])
        return f"Slotted({n}, 0.5)" if ty.name == "Slotted" else self.g.pick([f"Box({n}, torch.ones(()))", f"SubBox({n}, torch.zeros(()))"])

    def value(self, name: str, ty: Ty, k: int) -> str:
        """The text of one argument of call k: the same as before, changed, kept in state, or aliasing another one."""
        g = self.g
        if ty.kind in ("module", "obj") or (ty.kind in ("list", "dict", "set") and g.chance(0.4)):
            if name not in self.state:
                self.state[name] = self.literal(ty, 0)
            return f"st[{name!r}]"
        if ty.kind == "tensor" and "alias" in g.families and name != "x" and ty.shape == ("N", g.fixed) and g.chance(0.5):
            g.features.add("alias_input")
            return g.pick(["x", "x[:]", "x.view_as(x)", "x.detach()"])
        if name == "lst2" and "lst" in self.args and g.chance(0.6):
            return "lst"
        if ty.kind not in ("tensor", "opt") and name in self.base and g.chance(0.5):
            return self.base[name]
        self.base[name] = self.literal(ty, k)
        if g.backward and ty.kind == "tensor" and g.chance(0.2):
            return self.tensor_text(ty, k)
        return self.base[name]

    def between(self, k: int) -> list[str]:
        """Changes to globals and objects before call k."""
        g, out = self.g, []
        for name, ty in self.args.items():
            if ty.name == "Box" and g.chance(0.4):
                change = g.pick(["n = 5", "rate = 1.5", "items.append(3)", "extra = 1", "t = torch.ones(2)[0]", "n = -1", "n = 2.5"])
                out.append(f"st[{name!r}].{change}")
            if ty.kind == "module" and g.chance(0.4):
                change = g.pick(["mode = 'b'", "calls = 10", "eval()", "cnt += 1", "layers.append(nn.ReLU())", "lin.bias = None"])
                out.append(f"st[{name!r}].{change}")
        if "globals" in g.families and g.chance(0.6):
            out.append(g.pick(["globals()['G0'] = 7", "globals()['G0'] += 1", "G1.append(5)", "G2['a'] = 9", "globals()['G3'] = -0.0",
                               "globals()['GT'] = torch.ones(3)", "G2['z'] = 1", "globals()['G1'] = [4, 4, 4]"]))  # fmt: skip
        if "entry_defaults" in g.features and {"entry_function"} <= g.features and "varargs" not in g.families and g.chance(0.3):
            out.append("f.__defaults__ = (6, [3])")
        if "defaults" in g.families and g.chance(0.25):
            out.append("with_default.__defaults__ = (4, [9])")
        return out

    def write(self, kwonly: set[str]) -> list[str]:
        """The two functions' text."""
        lines = ["def call_args(k, st):", "    CALL[0] = k"]
        for k in range(self.calls):
            lines.append(f"    if k == {k}:")
            lines += [f"        {text}" for text in (self.between(k) if k else [])]
            for name, ty in self.args.items():
                lines.append(f"        {name} = {self.value(name, ty, k)}")
            pos = [n for n in self.args if n not in kwonly]
            keys = [f"{n!r}: {n}" for n in self.args if n in kwonly]
            if "entry_defaults" in self.g.features and self.g.chance(0.4):
                keys.append(self.g.pick(["'dnum': 5", "'dacc': [7, 8]"]))
            if "varargs" in self.g.families:
                if not kwonly and self.g.chance(0.5):
                    pos += [self.g.pick(["1", "2", "3"])] * self.g.rng.randint(1, 2)
                if self.g.chance(0.4):
                    keys.append(f"'z': {self.g.rng.randrange(4)}")
            lines.append(f"        return ({', '.join(pos)},), {{{', '.join(keys)}}}")
        head = ["def make_state():", "    st = {}"]
        head += [f"    st[{n!r}] = {text}" for n, text in self.state.items()]
        if "box" in self.state and "lst" in self.state and self.g.chance(0.5):
            head.append("    st['box'].items = st['lst']")
        return [*head, "    return st", "", *lines]


def write_body(g: Gen, size: int) -> None:
    """Statements of the entry function and its return."""
    if "globals" in g.families:
        g.line("global G0, G3")
    if "varargs" in g.families:
        g.line("r0 = sum(rest) + kw.get('z', 1)")
        g.scopes.declare(Var("r0", INT))
    g.budget = size
    made = g.pick([tensors.t_unary, tensors.t_scalar, tensors.t_binary])(g, 2)
    assert made is not None
    g.let(made[1], made[0], made[2])
    while g.budget > 0:
        g.statement()
    names = [v for v in g.scopes.stack[0].vars.values() if v.ty.kind not in ("fn", "module", "opt") and v.name not in ("self",)]
    made = g.pick([tensors.t_unary, tensors.t_scalar, tensors.t_binary, tensors.t_reduce])(g, 2)
    assert made is not None
    text = made[0]
    chosen = [v.name for v in g.rng.sample(names, min(len(names), g.rng.randint(1, 5)))]
    if g.chance(0.1):
        chosen.append(g.pick(["lambda q: q", "None", "(1, 'k')"]) if g.chance(0.5) else "None")
    style = g.rng.random()
    if style < 0.15:
        g.line(f"return {text}")
    elif style < 0.3:
        g.line("return {" + f"'out': {text}, " + ", ".join(f"'{c}': {c}" for c in chosen if c.isidentifier() and c != "None") + "}")
    elif style < 0.45:
        g.line(f"return [{', '.join([*chosen, text])}]")
    else:
        g.line(f"return {', '.join([text, *chosen])},")


def write_entry(g: Gen, args: dict[str, Ty], kwonly: set[str], size: int) -> tuple[list[str], str]:
    """The entry's definition and the body of `entry(st)`."""
    kind = "function"
    if "methodentry" in g.families and g.chance(0.5):
        kind = g.pick(["method", "module"])
    elif "closure" in g.families and g.chance(0.6):
        kind = "closure"
    g.features.add(f"entry_{kind}")
    params = [n for n in args if n not in kwonly]
    if "defaults" in g.families and g.chance(0.6):
        params = [*params, "dnum=2", "dacc=[1]"] if "varargs" not in g.families else params
        kwonly = kwonly | {"dnum=2", "dacc=[1]"} if "varargs" in g.families else kwonly
        g.features.add("entry_defaults")
        g.scopes.declare(Var("dnum", INT))
        g.scopes.declare(Var("dacc", list_of(INT)))
    varargs = "varargs" in g.families
    sig = [*params, *(["*rest"] if varargs else ["*"] if kwonly else []), *sorted(kwonly), *(["**kw"] if varargs else [])]
    for name, ty in args.items():
        if name != "unused":
            g.scopes.declare(Var(name, ty, inplace="inplace" in g.families))
    g.args = dict(args)
    head = {"function": ["def f({0}):"], "closure": ["def make_f():", "    held = 0", "    kept = [2]", "    def f({0}):"],
            "method": ["class Holder(Box):", "    def run(self, {0}):"],
            "module": ["class Entry(Net):", "    def forward(self, {0}):"]}[kind]  # fmt: skip
    for text in head:
        g.lines.append(text.format(", ".join(sig)))
    g.indent = 1 if kind == "function" else 2
    if kind == "closure":
        g.line("nonlocal held\nheld += 1")
        g.scopes.declare(Var("held", INT))
        g.scopes.declare(Var("kept", list_of(INT), rebind=False))
    if kind == "method":
        g.scopes.declare(Var("self", Ty("obj", name="Box"), rebind=False))
    if kind == "module":
        g.line("self.calls += 1")
        x = g.scopes.declare(Var("h0", tensor(("N", g.fixed))))
        g.line(f"{x.name} = super().forward(x.float())")
    write_body(g, size)
    if kind == "closure":
        g.indent = 1
        g.line("return f")
    g.indent = 0
    made = {"function": "f", "closure": "make_f()", "method": "Holder(2, torch.ones(())).run", "module": f"Entry({g.fixed})"}[kind]
    return g.lines, made


def generate(seed: int, attempt: int = 0) -> Program:
    """The program of a seed; other attempts give other programs for seeds whose program raises."""
    g = Gen(seed, attempt)
    choose_families(g)
    args = choose_args(g)
    if "net" not in args:
        g.families.discard("dtype") if g.chance(0.5) else None
    calls = g.pick([2, 3, 3, 4])
    kwonly = {n for n in args if n not in ("x", "y") and g.chance(0.15)}
    size = g.rng.choices([s for s, _ in SIZES], [w for _, w in SIZES])[0] + g.rng.randint(-3, 3)
    entry, made = write_entry(g, args, kwonly, size)
    inputs = Inputs(g, args, calls).write(kwonly)
    body = "\n".join([*entry, "", *inputs, "", "def entry(st):", f"    return {made}"])
    source = "\n\n".join([IMPORTS, *needed(body), body]) + "\n"
    return Program(seed, source, calls, frozenset(g.features), g.backward, g.may_raise, attempt)


__all__ = ["WRITERS", "generate"]
