"""Expression writers for Python ints, floats, bools and strs.

In: the generator state. Out: source text, or None where no suitable variable is in scope. Registered in `core.EXPRS`.
Values are kept small so that loops can't make them explode.
"""

from __future__ import annotations

from .core import Gen, expr
from .scope import BOOL, FLOAT, INT, STR

FLOATS = ("0.5", "-0.0", "0.0", "1.5", "-2.0", "0.25", "3.0", "1e-3", "float('nan')", "float('inf')", "7.75")
STRS = ("''", "'a'", "'b'", "'xyz'", "'Ab c'", "'a,b'")


def plain_names(g: Gen, kind: str) -> str | None:
    """A variable of a Python kind."""
    var = g.some(kind)
    return var.name if var else None


@expr("int", 3, leaf=True)
def int_literal(g: Gen, depth: int) -> str | None:
    return g.pick(["0", "1", "2", "3", "5", "-1", "-4", "10"])


@expr("int", 5, leaf=True)
def int_var(g: Gen, depth: int) -> str | None:
    return plain_names(g, "int")


@expr("int", 3)
def int_arith(g: Gen, depth: int) -> str | None:
    a = g.expr("int", depth - 1)
    b = g.expr("int", depth - 1)
    return g.pick(["({a} + {b})", "({a} - {b})", "({a} % 5 * 3)", "({a} // 3)", "({a} % 4)", "(-{a})", "abs({a})", "min({a}, {b})",
                   "max({a}, {b})", "({a} & {b})", "({a} | 1)", "({a} ^ {b})", "(~{a})", "(({a} % 5) << 1)", "({a} >> 1)",
                   "divmod({a}, 3)[1]", "(({a} % 3) ** 2)", "(3 - {a} % 3)", "-(-{a} // 2)",
                   "int({a} / 2)"]).format(a=a, b=b)  # fmt: skip


@expr("int", 1)
def int_from_other(g: Gen, depth: int) -> str | None:
    flag = g.expr("bool", depth - 1)
    num = g.expr("float", depth - 1)
    text = g.expr("str", depth - 1)
    return g.pick([f"int({flag})", f"len({text})", f"(1 if {flag} else {g.expr('int', depth - 1)})",
                   f"(int({num}) if abs({num}) < 100.0 else 7)", f"{text}.find('b')", f"{text}.count('a')", f"sum([{flag}, True, 2])",
                   f"(round({num}) if abs({num}) < 100.0 else 1)", f"ord({text}[0] if {text} else 'q')"])  # fmt: skip


@expr("int", 1.5)
def int_from_list(g: Gen, depth: int) -> str | None:
    var = g.some("list")
    if var is None:
        return None
    n = var.name
    if var.ty.elems[0] != INT:
        return f"len({n})"
    g.features.add("listindex")
    return g.pick([f"{n}[0]", f"{n}[-1]", f"len({n})", f"(sum({n}) % 50)", f"max({n})", f"min({n})",
                   f"{n}[{g.expr('int', depth - 1)} % len({n})]",
                   f"{n}.count(2)", f"{n}.index({n}[-1])", f"sorted({n})[0]", f"({n} + [4])[-1]", f"[*{n}][0]"])  # fmt: skip


@expr("int", 1, "dict")
def int_from_dict(g: Gen, depth: int) -> str | None:
    var = g.some("dict", lambda v: v.ty.elems[0] == INT)
    if var is None:
        return None
    n = var.name
    key = g.pick(["'a'", "'b'"])
    return g.pick([f"{n}[{key}]", f"{n}.get({key})", f"{n}.get('zz', 3)", f"len({n})", f"(sum({n}.values()) % 50)",
                   f"{n}.get({g.expr('str', 0)}, -1)",
                   f"list({n}.values())[0]", f"max({n}.values())", f"{{**{n}, 'q': 1}}['q']"])  # fmt: skip


@expr("int", 1, "set")
def int_from_set(g: Gen, depth: int) -> str | None:
    var = g.some("set")
    if var is None:
        return None
    n = var.name
    return g.pick([f"len({n})", f"(sum({n}) % 50)", f"max({n})", f"len({n} | {{1, 9}})", f"len({n} & {{1, 2}})", f"sorted({n})[0]",
                   f"len({n} - {{3}})"])


@expr("int", 1.5, "shapeint")
def int_from_shape(g: Gen, depth: int) -> str | None:
    var = g.some("tensor", lambda v: len(v.ty.shape) > 0)
    if var is None:
        return None
    n = var.name
    return g.pick([f"{n}.shape[0]", f"{n}.size(-1)", f"len({n})", f"{n}.dim()", f"{n}.numel()", f"({n}.shape[0] // 2)",
                   f"({n}.size(0) * 2)",
                   f"len({n}.shape)", f"{n}.shape.numel()", f"({n}.shape[-1] + {n}.ndim)", f"max({n}.shape)",
                   f"list({n}.size())[-1]"])  # fmt: skip


@expr("int", 1.5)
def int_from_obj(g: Gen, depth: int) -> str | None:
    var = g.some("obj")
    if var is None:
        return None
    n = var.name
    if var.ty.name == "Slotted":
        return f"{n}.a"
    if var.ty.name == "Point":
        return g.pick([f"{n}.px", f"({n}.px + {n}.py)"])
    choices = [f"{n}.n", f"{n}.items[0]", f"type({n}).total", f"{n}.count"]
    if g.on("dunder"):
        choices += [f"len({n})", f"{n}[1]", f"({n} + 2).n", f"sum({n})", f"int(3 in {n})", f"hash({n})", f"({n} == {n}) * 2",
                    f"(5 if {n} else 6)"]
    if g.on("property"):
        choices += [f"{n}.twice", f"{n}.desc", f"{n}.dynamic_thing"]
    if g.on("attr"):
        choices += [f"getattr({n}, 'n')", f"getattr({n}, 'nope', 4)", f"vars({n})['n']", f"{n}.__dict__['n']"]
    return g.pick(choices)


@expr("int", 1, "globals")
def int_from_global(g: Gen, depth: int) -> str | None:
    return g.pick(["G0", "G1[0]", "G2['a']", "len(G1)", "(G0 + G1[-1])", "G2.get('b', 0)"])


@expr("int", 1, "module")
def int_from_module(g: Gen, depth: int) -> str | None:
    var = g.some("module")
    if var is None:
        return None
    return g.pick([f"{var.name}.calls", f"len({var.name}.layers)", f"len({var.name}.hist)", f"int({var.name}.training)"])


@expr("int", 1, "recursion")
def int_recursion(g: Gen, depth: int) -> str | None:
    return g.pick(["fact({0} % 5)", "fib({0} % 6)"]).format(g.expr("int", depth - 1))


@expr("int", 1, "functional")
def int_functional(g: Gen, depth: int) -> str | None:
    a, b = g.expr("int", 0), g.expr("int", 0)
    return g.pick(["functools.reduce(lambda p, q: p + q, [{a}, {b}, 3])", "sum(map(abs, [{a}, {b}]))", "(lambda p, q=2: p + q)({a})",
                   "(lambda p, q=2: p + q)({a}, q={b})", "functools.partial(max, {a})({b})", "operator.add({a}, {b})",
                   "len(list(filter(lambda p: p > 1, [{a}, {b}, 2])))", "max([{a}, {b}], key=lambda p: -p)",
                   "list(zip([{a}], [{b}]))[0][1]",
                   "sorted([{a}, {b}, 2], key=lambda p: -p)[0]", "math.gcd({a}, {b})", "operator.itemgetter(1)([{a}, {b}])",
                   "next(iter([{a}, {b}]))", "list(itertools.accumulate([{a}, {b}]))[-1]",
                   "list(itertools.chain([{a}], [{b}]))[1]"]).format(a=a, b=b)  # fmt: skip


@expr("int", 1, "comprehension")
def int_comprehension(g: Gen, depth: int) -> str | None:
    a, i = g.expr("int", 0), g.fresh("ci")
    return g.pick(["sum({i} * {a} for {i} in range(3))", "sum([{i} + 1 for {i} in range(4) if {i} != {a}])",
                   "len({{{i} % 2 for {i} in range(4)}})",
                   "{{{i}: {i} * 2 for {i} in range(3)}}[1]", "[{i} for {i} in (1, {a}, 3)][-1]",
                   "max({i} - {a} for {i} in [1, 2])"]).format(a=a, i=i)  # fmt: skip


@expr("int", 3, "opaque")
def int_hidden(g: Gen, depth: int) -> str | None:
    a, b = g.expr("int", depth - 1), g.expr("int", depth - 1)
    return g.pick(["hidden_int({a})", "({b} + hidden_int({a}))", "[{b}, hidden_int({a}), 2][1]", "max({b}, hidden_int({a}))",
                   "({a} if hidden_int({b}) > 2 else 3)",
                   "(hidden_int({a}) and {b})", "hidden_int(hidden_int({a}))", "{{'k': hidden_int({a}), 'q': {b}}}['k']",
                   "sum(hidden_int(q) for q in (1, 2))"]).format(a=a, b=b)  # fmt: skip


@expr("bool", 2, "opaque")
def bool_hidden(g: Gen, depth: int) -> str | None:
    return f"(hidden_int({g.expr('int', depth - 1)}) {g.pick(['>', '==', '<='])} {g.expr('int', depth - 1)})"


@expr("int", 3, "item")
def int_item(g: Gen, depth: int) -> str | None:
    var = g.some("tensor")
    if var is None:
        return None
    if var.ty.dtype == "f":
        return f"int({var.name}.detach().abs().clamp(0, 50).nan_to_num(1.0).sum().clamp(max=90).item())"
    return f"int({var.name}.sum().item())"


@expr("float", 2, leaf=True)
def float_literal(g: Gen, depth: int) -> str | None:
    return g.pick(FLOATS)


@expr("float", 5, leaf=True)
def float_var(g: Gen, depth: int) -> str | None:
    return plain_names(g, "float")


@expr("float", 3)
def float_arith(g: Gen, depth: int) -> str | None:
    a, b, i = g.expr("float", depth - 1), g.expr("float", depth - 1), g.expr("int", depth - 1)
    return g.pick(["({a} + {b})", "({a} - {b})", "({a} * 0.5)", "(-{a})", "abs({a})", "({a} / 2)", "({i} / 4)", "float({i})",
                   "({i} * 0.25)", "({a} * -1.0)",
                   "max({a}, 0.0)", "min({a}, {b})", "math.sqrt(abs({a}))", "math.copysign(1.0, {a})", "round({a}, 1)", "({a} + {i})",
                   "({a} * 0)",
                   "math.tanh({a})", "float(str({i}))", "({a} // 2.0)", "sum([{a}, 1.0])", "pow({i} % 3, 0.5)",
                   "(0.0 if {a} == {b} else {a})"]).format(a=a, b=b, i=i)  # fmt: skip


@expr("float", 1)
def float_from_other(g: Gen, depth: int) -> str | None:
    lst = g.some("list", lambda v: v.ty.elems[0] == FLOAT)
    obj = g.some("obj", lambda v: v.ty.name in ("Box", "SubBox"))
    choices = [f"({g.expr('float', depth - 1)} if {g.expr('bool', depth - 1)} else -0.0)"]
    if lst:
        choices += [f"{lst.name}[0]", f"sum({lst.name})", f"{lst.name}[-1]"]
    if obj:
        choices += [f"{obj.name}.rate"]
    if g.on("globals"):
        choices += ["G3"]
    return g.pick(choices)


@expr("bool", 4)
def bool_compare(g: Gen, depth: int) -> str | None:
    kind = g.pick(["int", "int", "float", "str"])
    op = g.pick(["==", "!=", "<", "<=", ">", ">="])
    return f"({g.expr(kind, depth - 1)} {op} {g.expr(kind, depth - 1)})"


@expr("bool", 3, leaf=True)
def bool_var(g: Gen, depth: int) -> str | None:
    return plain_names(g, "bool")


@expr("bool", 2)
def bool_logic(g: Gen, depth: int) -> str | None:
    a, b, i = g.expr("bool", depth - 1), g.expr("bool", depth - 1), g.expr("int", depth - 1)
    return g.pick(["({a} and {b})", "({a} or {b})", "(not {a})", "(0 < {i} <= 5)", "bool({i})", "({a} is {b})", "any([{a}, {b}])",
                   "all(({a}, {b}))",
                   "({a} != {b})", "bool({i} or {a})", "({i} in (1, 2, 3))", "({i} not in [0, 4])", "({a} & {b})",
                   "({a} ^ True)"]).format(a=a, b=b, i=i)  # fmt: skip


@expr("bool", 1)
def bool_container(g: Gen, depth: int) -> str | None:
    var = g.some(g.pick(["list", "dict", "set", "str"]))
    if var is None:
        return None
    n = var.name
    if var.ty.kind == "list":
        if var.ty.elems[0] in (INT, STR, BOOL):
            return g.pick([f"({g.value(var.ty.elems[0], depth - 1)} in {n})", f"(len({n}) > 2)", f"bool({n})", f"({n} == {n}[:])"])
        return f"(len({n}) > {g.expr('int', 0)})"
    if var.ty.kind == "dict":
        return g.pick([f"('a' in {n})", f"({g.expr('str', 0)} in {n})", f"(list({n}) == ['a', 'b'])", f"bool({n})"])
    if var.ty.kind == "set":
        return g.pick([f"({g.expr('int', 0)} in {n})", f"({n} <= {{1, 2, 3}})", f"{n}.isdisjoint([1, 2])"])
    return g.pick([f"{n}.startswith('a')", f"('b' in {n})", f"{n}.isupper()", f"bool({n})"])


@expr("bool", 1.5, "isinstance")
def bool_isinstance(g: Gen, depth: int) -> str | None:
    names = [v for v in g.scopes.visible().values()]
    if not names:
        return None
    n = g.pick(names).name
    return g.pick([f"isinstance({n}, int)", f"isinstance({n}, (torch.Tensor, list))", f"(type({n}) is float)",
                   f"isinstance({n}, torch.Tensor)",
                   f"callable({n})", f"hasattr({n}, 'shape')", f"isinstance({n}, str)", f"(type({n}).__name__ == 'Box')", f"({n} is None)",
                   f"isinstance({n}, bool)", f"issubclass(type({n}), object)"])  # fmt: skip


@expr("bool", 1.5, "identity")
def bool_identity(g: Gen, depth: int) -> str | None:
    kind = g.pick(["tensor", "tensor", "list", "dict", "obj"])
    a, b = g.some(kind), g.some(kind)
    if a is None or b is None:
        return None
    return g.pick([f"({a.name} is {b.name})", f"({a.name} is not {b.name})", f"({a.name} is None)", f"(id({a.name}) == id({b.name}))"])


@expr("bool", 1.5, "shapeint")
def bool_shape(g: Gen, depth: int) -> str | None:
    var = g.some("tensor", lambda v: len(v.ty.shape) > 0)
    if var is None:
        return None
    n = var.name
    return g.pick([f"({n}.shape[0] > {g.pick(['2', '3', '4'])})", f"({n}.size(0) % 2 == 0)", f"({n}.dtype == torch.float32)",
                   f"{n}.is_floating_point()",
                   f"({n}.shape[0] == {n}.shape[-1])", f"({n}.shape == (4, 3))", f"{n}.is_contiguous()", f"{n}.requires_grad",
                   f"(tuple({n}.shape)[0] < 5)", "(torch.is_grad_enabled())", f"({n}.device.type == 'cpu')"])  # fmt: skip


@expr("bool", 2, "datadep")
def bool_data(g: Gen, depth: int) -> str | None:
    var = g.some("tensor")
    if var is None:
        return None
    return g.pick([f"bool(({var.name} > 0).any())", f"({var.name}.sum() > 0)", f"bool({var.name}.sum() > 0.5)",
                   f"torch.equal({var.name}, {var.name})"])


@expr("str", 3, leaf=True)
def str_literal(g: Gen, depth: int) -> str | None:
    return g.pick(STRS)


@expr("str", 3, leaf=True)
def str_var(g: Gen, depth: int) -> str | None:
    return plain_names(g, "str")


@expr("str", 2)
def str_ops(g: Gen, depth: int) -> str | None:
    s, i = g.expr("str", depth - 1), g.expr("int", depth - 1)
    pool = ["({s} + 'q')", "{s}.upper()", "str({i})", "{s}[::-1]", "{s}[:2]", "({s} * 2)[:6]", "('y' if {i} else 'n')",
            "{s}.replace('a', 'z')"]
    if g.on("str"):
        pool += ["'-'.join([{s}, 'k'])", "'%s/%d' % ({s}, {i})", "'{{}}+{{}}'.format({s}, {i})", "{s}.split(',')[0]",
                 "{s}.strip()", "{s}.title()", "repr({s})[:8]", "{s}.ljust(4, '.')", "''.join(sorted({s}))", "max({s} + 'a')",
                 "{s}.partition('b')[2]", "str([{i}, {s}])", "str({i} > 2)"]  # fmt: skip
    return g.pick(pool).format(s=s, i=i)


@expr("str", 1, "str")
def str_fstring(g: Gen, depth: int) -> str | None:
    parts = []
    for _ in range(g.rng.randint(1, 3)):
        kind = g.pick(["int", "float", "bool", "str"])
        var = g.some(kind)
        if var:
            parts.append("{" + var.name + g.pick(["", "!r", "!s", ":>5" if kind != "bool" else ""]) + "}")
    shaped = g.some("tensor", lambda v: len(v.ty.shape) > 0)
    if shaped and g.chance(0.3):
        parts.append("{" + shaped.name + ".shape[0]}")
    return 'f"' + "_".join(parts) + '"'


SCALAR_TYPES = {"int": INT, "float": FLOAT, "bool": BOOL, "str": STR}
