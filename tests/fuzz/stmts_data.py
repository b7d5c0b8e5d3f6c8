"""Statement writers that make and change data: assignments, containers, in-place tensor ops, objects, globals.

In: the generator state. Out: lines written; True if something was written. Registered in `core.STMTS`.
Lists stay non-empty and dicts keep the keys "a" and "b", so that most programs do not raise.
"""

from __future__ import annotations

from .core import Gen, stmt
from .exprs import SCALAR_TYPES
from .scope import FLOAT, INT, PY_SCALARS, STR, Ty, Var, dict_of, list_of


@stmt(7)
def assign_tensor(g: Gen) -> bool:
    text, ty, inplace = g.tensor_expr(3)
    g.let(ty, text, inplace)
    return True


@stmt(4)
def assign_scalar(g: Gen) -> bool:
    kind = g.pick(["int", "int", "float", "bool", "str"])
    g.let(SCALAR_TYPES[kind], g.expr(kind, 3))
    return True


@stmt(2)
def augment(g: Gen) -> bool:
    names = [v for v in g.scopes.rebindable() if v.ty.kind in ("int", "float", "str", "tensor")]
    if not names:
        return False
    var = g.pick(names)
    if var.ty.kind == "int":
        g.line(f"{var.name} {g.pick(['+=', '-=', '|=', '^='])} {g.expr('int', 1)}")
    elif var.ty.kind == "float":
        g.line(f"{var.name} {g.pick(['+=', '-=', '*='])} {g.pick(['0.5', '1.0', '-1.0'])}")
    elif var.ty.kind == "str":
        g.line(f"{var.name} = ({var.name} + {g.expr('str', 0)})[-8:]")
    elif var.ty.dtype == "f" and var.inplace and "inplace" in g.families:
        g.line(f"{var.name} {g.pick(['+=', '-=', '*='])} {g.tensor_like(var.ty.shape, 'f', 0)}")
        g.features.add("inplace")
    else:
        return False
    return True


@stmt(3, "inplace")
def tensor_inplace(g: Gen) -> bool:
    var = g.some("tensor", lambda v: v.inplace and v.ty.dtype == "f")
    if var is None:
        return False
    n, other = var.name, g.tensor_like(var.ty.shape, "f", 0)
    form = g.pick(["{n}.add_({i})", "{n}.mul_(0.5)", "{n}.tanh_()", "{n}.copy_({o})", "{n}.sub_({o})", "{n}.clamp_(-2, 2)", "{n}.neg_()",
                   "{n}.zero_()",
                   "{n}.fill_({s})", "torch.relu_({n})", "{n}.add_({o}, alpha=2)", "F.relu({n}, inplace=True)",
                   "torch.add({n}, 1, out={n})",
                   "r{c} = {n}.add_(1)", "{n}.data.mul_(2)"])  # fmt: skip
    g.counter += 1
    if form.startswith("r{c}"):
        text = form.format(n=n, c=g.counter)
        g.line(text)
        g.scopes.declare(Var(f"r{g.counter}", var.ty, var.inplace))
        return True
    g.line(form.format(n=n, o=other, i=g.expr("int", 1), s=g.pick(["0.5", "-1.0", "2"])))
    return True


@stmt(2.5, "setitem")
def tensor_setitem(g: Gen) -> bool:
    var = g.some("tensor", lambda v: v.inplace and v.ty.dtype == "f" and len(v.ty.shape) > 0)
    if var is None or g.backward:
        return False
    n, num = var.name, g.pick(["0.5", "-1.0", g.expr("int", 1)])
    forms = [f"{n}[0] = {num}", f"{n}[-1] = {num}", f"{n}[:1] = {num}", f"{n}[...] = {num}", f"{n}[0] += 1", f"{n}[{n} > 0] = {num}",
             f"{n}[0] = {n}[-1]",
             f"{n}[:] = {n} * 2", f"{n}[1:] = {num}"]  # fmt: skip
    if len(var.ty.shape) == 2:
        forms += [f"{n}[:, 0] = {num}", f"{n}[0, -1] = {num}", f"{n}[..., 0] += {num}", f"{n}[0][0] = {num}"]
    g.line(g.pick(forms))
    return True


@stmt(1.5, "alias")
def alias_name(g: Gen) -> bool:
    kind = g.pick(["tensor", "list", "dict", "obj", "set"])
    var = g.some(kind)
    if var is None:
        return False
    g.let(var.ty, var.name, var.inplace, stem="al")
    return True


def _elem_type(g: Gen) -> Ty:
    if g.chance(0.35):
        _, ty, _ = g.tensor_expr(0)
        return ty
    return g.pick([INT, INT, FLOAT, STR])


@stmt(1.5, "list")
def list_make(g: Gen) -> bool:
    elem = _elem_type(g)
    i = g.fresh("li")
    forms = [g.value(list_of(elem)), g.value(list_of(elem)) + " * 2", g.value(list_of(elem)) + " + " + g.value(list_of(elem)),
             f"list({g.value(list_of(elem))})"]
    if elem == INT:
        forms += [f"list(range({g.expr('int', 0)} % 4 + 1))", f"[{i} * {g.expr('int', 0)} for {i} in range(3)]", "[1] + [2] * 2",
                  "list(reversed([1, 2, 3]))"]
    g.let(list_of(elem), g.pick(forms))
    return True


@stmt(3, "list")
def list_change(g: Gen) -> bool:
    var = g.some("list")
    if var is None:
        return False
    n, elem = var.name, var.ty.elems[0]
    v, idx = g.value(elem), g.expr("int", 1)
    forms = [f"{n}.append({v})", f"{n}.append({v})", f"{n}.extend([{v}, {v}])", f"{n}.insert(0, {v})", f"{n}[0] = {v}", f"{n}[-1] = {v}",
             f"{n}.reverse()",
             f"{n} += [{v}]" if var.rebind and var in g.scopes.rebindable() else f"{n}.append({v})", f"{n}[{idx} % len({n})] = {v}",
             f"{n}[:1] = [{v}, {v}]", f"if len({n}) > 1:\n    {n}.pop()", f"if len({n}) > 2:\n    del {n}[0]", f"{n}.insert(1, {n}[0])",
             f"{n}.clear()\n{n}.append({v})", f"{n}[:] = {n}[::-1]", f"if len({n}) > 2:\n    {n}.pop(0)",
             f"{n}.insert({idx} % 3, {n}.pop())",
             f"{n}[0], {n}[-1] = {n}[-1], {n}[0]", f"{n}[1:1] = [{v}]", f"{n}.__setitem__(0, {v})"]  # fmt: skip
    if elem in (INT, FLOAT, STR) and elem != FLOAT:
        forms += [f"{n}.sort()", f"{n}.sort(reverse=True)", f"{n}.remove({n}[0])\n{n}.append({v})",
                  f"{n}.sort(key=lambda q: (q == {v}, q))"]
    if elem == INT:
        forms += [f"{n}[0] += 1", f"{n}[-1] *= 2"]
    g.line(g.pick(forms))
    return True


@stmt(1, "list")
def list_derive(g: Gen) -> bool:
    var = g.some("list")
    if var is None:
        return False
    n, i = var.name, g.fresh("li")
    forms = [f"{n}[:]", f"{n}.copy()", f"{n}[::-1]", f"[*{n}]", f"{n} + {n}[:1]", f"[{i} for {i} in {n}]", f"list({n})", f"{n}[-2:]",
             f"[{n}[0] for _ in range(2)]",
             f"list(reversed({n}))", f"[{i} for _, {i} in enumerate({n})]"]  # fmt: skip
    g.let(var.ty, g.pick(forms), var.inplace)
    return True


@stmt(1.2, "dict")
def dict_make(g: Gen) -> bool:
    elem = _elem_type(g)
    a, b = g.value(elem), g.value(elem)
    i = g.fresh("di")
    g.let(dict_of(elem), g.pick(["{{'a': {a}, 'b': {b}}}", "dict(a={a}, b={b})", "{{'b': {b}, 'a': {a}}}", "dict([('a', {a}), ('b', {b})])",
                                 "{{{i}: {a} for {i} in 'ab'}}", "dict.fromkeys(['a', 'b'], {a})", "dict(zip('ab', ({a}, {b})))",
                                 "{{**{{'a': {a}}}, 'b': {b}}}",
                                 "collections.OrderedDict(a={a}, b={b})"]).format(a=a, b=b, i=i))  # fmt: skip
    return True


@stmt(2.5, "dict")
def dict_change(g: Gen) -> bool:
    var = g.some("dict")
    if var is None:
        return False
    n, v = var.name, g.value(var.ty.elems[0])
    key = g.pick(["'a'", "'b'", "'c'", "'zz'", "'a'"])
    i = g.fresh("dk")
    forms = [f"{n}[{key}] = {v}", f"{n}.update({{'b': {v}, 'd': {v}}})", f"{n}.update(c={v})", f"{n}.setdefault({key}, {v})",
             f"{n}.pop('c', None)",
             f"{n}['b'] = {n}.pop('a')\n{n}['a'] = {v}", f"if 'd' in {n}:\n    del {n}['d']", f"{n}['a'], {n}['b'] = {n}['b'], {n}['a']",
             f"for {i} in list({n}):\n    {n}[{i}] = {v}", f"{n}[{g.expr('str', 1)}] = {v}", f"{n}.setdefault('e', {n}['a'])",
             f"{n}.clear()\n{n}.update(b={v}, a={v})"]  # fmt: skip
    if var.rebind and var in g.scopes.rebindable():
        forms.append(f"{n} |= {{'f': {v}}}")
    if var.ty.elems[0] == INT:
        forms += [f"{n}['a'] += 1", f"for {i} in {n}:\n    {n}[{i}] += 1"]
    g.line(g.pick(forms))
    return True


@stmt(1.2, "set")
def set_stmt(g: Gen) -> bool:
    var = g.some("set")
    v = g.expr("int", 1)
    if var is None or g.chance(0.3):
        g.let(Ty("set"), g.pick(["{{1, 2, {0}}}", "set([{0}, 3])", "{{q % 3 for q in range({0} % 4 + 1)}}",
                                 "set(range(3)) | {{{0}}}"]).format(v))
        return True
    n = var.name
    g.line(g.pick([f"{n}.add({v})", f"{n}.discard({v})\n{n}.add(1)", f"{n}.update([{v}, 8])", f"if {v} in {n}:\n    {n}.add(100)",
                   f"{n}.add(len({n}))",
                   f"{n}.difference_update([5, 6])\n{n}.add(3)"]))  # fmt: skip
    return True


@stmt(1.5, "tuple")
def tuple_stmt(g: Gen) -> bool:
    var = g.some("tuple", lambda v: len(v.ty.elems) >= 2)
    if var is None or g.chance(0.4):
        elems = tuple(_elem_type(g) for _ in range(g.rng.randint(2, 3)))
        g.let(Ty("tuple", elems), g.value(Ty("tuple", elems)), False)
        return True
    n, elems = var.name, var.ty.elems
    names = [g.fresh("u") for _ in elems]
    if g.chance(0.3):
        g.line(f"{names[0]}, *{names[1]} = {n}")
        g.scopes.declare(Var(names[0], elems[0], False))
        return True
    g.line(", ".join(names) + f" = {n}" + g.pick(["", "[:]", "[::-1][::-1]"]))
    for name, ty in zip(names, elems, strict=True):
        g.scopes.declare(Var(name, ty, False))
    return True


@stmt(0.8, "tuple")
def swap(g: Gen) -> bool:
    for first in g.scopes.rebindable():
        same = [v for v in g.scopes.rebindable() if v.ty == first.ty and v.name != first.name and v.inplace == first.inplace]
        if same and g.chance(0.4):
            g.line(f"{first.name}, {g.pick(same).name} = {same[0].name}, {first.name}")
            return True
    return False


@stmt(1, "views")
def unpack_pieces(g: Gen) -> bool:
    var = g.some("tensor", lambda v: len(v.ty.shape) == 2 and v.ty.shape[1] == g.fixed and v.ty.dtype == "f")
    if var is None or "inplace" in g.families:
        return False
    names = [g.fresh("p") for _ in range(g.fixed)]
    g.line(", ".join(names) + " = " + g.pick([f"{var.name}.unbind(1)", f"{var.name}.t()", f"torch.unbind({var.name}, dim=-1)"]))
    for name in names:
        g.scopes.declare(Var(name, Ty("tensor", dtype="f", shape=var.ty.shape[:1]), False))
    return True


@stmt(2.5, "attr")
def object_change(g: Gen) -> bool:
    var = g.some("obj")
    if var is None:
        return False
    n, v, f = var.name, g.expr("int", 1), g.expr("float", 0)
    if var.ty.name == "Slotted":
        g.line(g.pick([f"{n}.a = {v}", f"{n}.a += 1", f"{n}.b = {f}", f"setattr({n}, 'a', {v})"]))
        return True
    if var.ty.name == "Point":
        g.line(g.pick([f"{n}.px = {v}", f"{n}.py += 1"]))
        return True
    forms = [f"{n}.n = {v}", f"{n}.n += 1", f"{n}.bump()", f"{n}.bump(k={v})", f"{n}.items.append({v})", f"{n}.t = {n}.t * 0.5",
             f"setattr({n}, 'extra', {v})",
             f"{n}.rate = {f}", f"type({n}).total += 1", f"{n}.items[0] = {v}", f"{n}.bump().bump(2)",
             f"if hasattr({n}, 'extra'):\n    del {n}.extra",
             f"{n}.__dict__['late'] = {v}", f"{n}.count += 1",
             f"{n}.extra = {v}\n{n}.other = 1\n{n}.extra = 2", f"del {n}.rate\n{n}.rate = {f}"]  # fmt: skip
    if g.on("property"):
        forms += [f"{n}.twice = {v}", f"{n}.twice += 2", f"{n}.desc = {v}"]
    if g.on("dunder"):
        forms += [f"{n}[0] = {v}", f"{n}[1] += 1"]
        if var.rebind and var in g.scopes.rebindable():
            forms += [f"{n} += 1"]
    if not g.backward and "inplace" in g.families:
        forms += [f"{n}.t += 1", f"{n}.t.mul_(0.5)"]
    g.line(g.pick(forms))
    return True


@stmt(1.2, "class")
def object_make(g: Gen) -> bool:
    v = g.expr("int", 1)
    name, text = g.pick([("Box", f"Box({v}, torch.ones(()))"), ("SubBox", f"SubBox({v}, torch.zeros(()))"), ("Box", f"Box.make({v})"),
                         ("Point", f"Point({v}, 2)"), ("Point", f"Point(px={v})"), ("SubBox", f"SubBox.make({v})")])  # fmt: skip
    if "slots" in g.families and g.chance(0.3):
        name, text = "Slotted", f"Slotted({v}, 0.5)"
        g.features.add("slots")
    g.let(Ty("obj", name=name), text)
    return True


@stmt(2, "globals")
def global_change(g: Gen) -> bool:
    v = g.expr("int", 1)
    g.features.add("globals_write")
    g.line(g.pick([f"G0 = {v}", "G0 += 1", f"G1.append({v})", f"G2['a'] = {v}", "G2['b'] += 1", f"G1[0] = {v}", f"globals()['G0'] = {v}",
                   "bump_global()",
                   "G3 = G3 * 0.5", f"G1[:] = [{v}]"]))  # fmt: skip
    return True


@stmt(1.5, "module")
def module_change(g: Gen) -> bool:
    var = g.some("module")
    if var is None:
        return False
    n = var.name
    forms = [f"{n}.calls += 1", f"{n}.mode = {g.expr('str', 0)}", f"{n}.hist.append({g.expr('int', 0)})", f"{n}.note = {g.expr('int', 0)}"]
    if "inplace" in g.families:
        forms += [f"{n}.cnt.add_(1)", f"{n}.cnt += 1"]
    else:
        forms += [f"{n}.cnt = {n}.cnt + 1"]
    g.line(g.pick(forms))
    return True


@stmt(0.7)
def delete_local(g: Gen) -> bool:
    inner = [v for v in g.scopes.stack[-1].vars.values() if v.rebind and v.name not in g.args and v.ty in PY_SCALARS]
    if not inner:
        return False
    var = g.pick(inner)
    g.line(f"del {var.name}")
    del g.scopes.stack[-1].vars[var.name]
    g.features.add("del")
    return True
