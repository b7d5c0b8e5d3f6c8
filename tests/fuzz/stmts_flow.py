"""Statement writers for control flow: branches, loops, try, with, nested functions, raises, prints, early returns.

In: the generator state. Out: lines written; True if something was written. Registered in `core.STMTS`.
"""

from __future__ import annotations

from .core import Gen, stmt
from .scope import FLOAT, INT, STR, Ty, Var, tensor

MAX_BLOCKS = 4
MAX_REPEAT = 12


def room(g: Gen) -> bool:
    """Whether another nested block may be opened."""
    return g.blocks < MAX_BLOCKS and g.budget > 1


@stmt(3)
def branch(g: Gen) -> bool:
    if not room(g):
        return False
    with g.block(f"if {g.expr('bool', 2)}:"):
        g.statements(g.rng.randint(1, 3))
    if g.chance(0.25):
        with g.block(f"elif {g.expr('bool', 2)}:"):
            g.statements(g.rng.randint(1, 2))
    if g.chance(0.55):
        with g.block("else:"):
            g.statements(g.rng.randint(1, 3))
    return True


@stmt(1, "walrus")
def walrus(g: Gen) -> bool:
    if not room(g):
        return False
    name = g.fresh("wal")
    with g.block(f"if ({name} := {g.expr('int', 2)}) {g.pick(['>', '<', '==', '!='])} {g.expr('int', 1)}:"):
        g.scopes.declare(Var(name, INT))
        g.statements(2)
    g.scopes.declare(Var(name, INT))
    return True


@stmt(1)
def both_ways(g: Gen) -> bool:
    var = g.some("tensor", lambda v: v.ty.dtype == "f")
    if var is None:
        return False
    name, num = g.fresh("bw"), g.expr("int", 0)
    g.line(f"if {g.expr('bool', 2)}:\n    {name} = {var.name} + {num}\nelse:\n    {name} = {var.name}.tanh()")
    g.scopes.declare(Var(name, var.ty))
    return True


def _loop_head(g: Gen) -> tuple[str, list[Var], int]:
    i = g.fresh("i")
    options: list[tuple[str, list[Var], int]] = [
        (f"for {i} in range({g.rng.randint(1, 3)}):", [Var(i, INT)], 3),
        (f"for {i} in range({g.expr('int', 1)} % 3 + 1):", [Var(i, INT)], 3),
        (f"for {i} in (1, {g.expr('int', 1)}):", [Var(i, INT)], 2),
        (f"for {i} in range(3, 0, -2):", [Var(i, INT)], 2),
        (f"for {i} in {g.expr('str', 0)}:", [Var(i, STR)], 3),
    ]
    lst = g.some("list")
    if lst is not None:
        j, n, elem = g.fresh("j"), lst.name, lst.ty.elems[0]
        options += [(f"for {j} in list({n}):", [Var(j, elem, False)], 4), (f"for {i}, {j} in enumerate({n}[:3]):",
                                                                           [Var(i, INT), Var(j, elem, False)], 3),
                    (f"for {j} in reversed({n}[-3:]):", [Var(j, elem, False)], 3),
                    (f"for {i}, {j} in zip([1, 2], {n}):", [Var(i, INT), Var(j, elem, False)], 2),
                    (f"for {i}, {j} in zip(range(5), {n}[:2]):", [Var(i, INT), Var(j, elem, False)], 2)]  # fmt: skip
    dct = g.some("dict")
    if dct is not None:
        k, v = g.fresh("k"), g.fresh("v")
        options += [(f"for {k}, {v} in list({dct.name}.items()):", [Var(k, STR), Var(v, dct.ty.elems[0], False)], 3),
                    (f"for {k} in list({dct.name}.keys())[:2]:", [Var(k, STR)], 2), (f"for {k} in sorted({dct.name}):", [Var(k, STR)],
                                                                                     3)]  # fmt: skip
    ten = g.some("tensor", lambda v: len(v.ty.shape) > 0 and v.ty.dtype == "f")
    if ten is not None:
        row = g.fresh("row")
        inner = tensor(ten.ty.shape[1:])
        options += [(f"for {row} in {ten.name}[:2]:", [Var(row, inner, ten.inplace)], 2),
                    (f"for {i}, {row} in enumerate({ten.name}.unbind(0)[:2]):", [Var(i, INT), Var(row, inner, False)], 2)]  # fmt: skip
    if g.on("generator"):
        q = g.fresh("q")
        options += [(f"for {q} in counted({g.expr('int', 0)} % 4):", [Var(q, INT)], 3), (f"for {q} in chained(2):", [Var(q, INT)], 3)]
    return g.pick(options)


def _loop_exit(g: Gen) -> None:
    if g.chance(0.35):
        word = g.pick(["break", "continue"])
        with g.block(f"if {g.expr('bool', 1)}:"):
            g.line(word)
        g.features.add(word)


@stmt(3, "loop")
def for_loop(g: Gen) -> bool:
    if not room(g):
        return False
    head, names, times = _loop_head(g)
    if g.repeat * times > MAX_REPEAT:
        return False
    g.loops += 1
    with g.block(head, times):
        for var in names:
            g.scopes.declare(var)
        g.statements(g.rng.randint(1, 2))
        _loop_exit(g)
        g.statements(g.rng.randint(1, 2))
    if g.chance(0.2):
        with g.block("else:"):
            g.statements(1)
    g.loops -= 1
    return True


@stmt(1.2, "while")
def while_loop(g: Gen) -> bool:
    if not room(g) or g.repeat * 3 > MAX_REPEAT:
        return False
    name = g.fresh("w")
    g.line(f"{name} = 0")
    g.scopes.declare(Var(name, INT, rebind=False))
    g.loops += 1
    head = g.pick([f"while {name} < 3:", f"while {name} < 3 and {g.expr('bool', 1)}:", f"while True:\n    if {name} >= 2:\n        break"])
    first, *rest = head.split("\n")
    with g.block(first, 3):
        for extra in rest:
            g.line(extra[4:])
        g.line(f"{name} += 1")
        g.statements(g.rng.randint(1, 2))
        _loop_exit(g)
    if g.chance(0.25):
        with g.block("else:"):
            g.statements(1)
    g.loops -= 1
    return True


def _raiser(g: Gen) -> tuple[str, str]:
    """A statement that may raise, and a handler head that catches it."""
    lst, dct, ten = g.some("list"), g.some("dict"), g.some("tensor", lambda v: len(v.ty.shape) > 0)
    b, i = g.expr("bool", 1), g.expr("int", 1)
    options = [("hidden_raise(2)" if "opaque" in g.families else f"raises({i})", "UserError"),
               (f"if {b}:\n    raise UserError({i})", "UserError"),
               (f"if {b}:\n    raise ValueError('bad %d' % {i})", "(ValueError, KeyError)"),
               (f"{g.fresh('z')} = 1 // ({i} % 2)", "ZeroDivisionError"), (f"raises({i})", "UserError"),
               (f"{g.fresh('z')} = int('q' + str({i}))", "ValueError"),
               (f"assert {b}, 'no'", "AssertionError"), (f"{g.fresh('z')} = next(iter([]))", "StopIteration"),
               (f"raise UserError({i}) from None", "Exception"),
               (f"{g.fresh('z')} = None + {i}", "TypeError")]  # fmt: skip
    if lst is not None:
        options.append((f"{g.fresh('z')} = {lst.name}[{i} + 2]", "IndexError"))
    if dct is not None:
        options.append((f"{g.fresh('z')} = {dct.name}[{g.expr('str', 1)}]", "(KeyError, IndexError)"))
    if "op_error" in g.families and ten is not None:
        g.features.add("op_error")
        n = ten.name
        return g.pick([(f"{g.fresh('z')} = {n} + torch.ones(7, 7)", "RuntimeError"), (f"{g.fresh('z')} = {n}[50]", "IndexError"),
                       (f"{g.fresh('z')} = {n}.view(997)", "RuntimeError"), (f"{g.fresh('z')} = {n} @ torch.ones(9, 9)", "RuntimeError"),
                       (f"{g.fresh('z')} = {n}.nope", "AttributeError"),
                       (f"{g.fresh('z')} = torch.cat([{n}, torch.ones(1, 1, 1, 1)])", "RuntimeError")])  # fmt: skip
    return g.pick(options)


@stmt(2.5, "try")
def try_block(g: Gen) -> bool:
    if not room(g):
        return False
    danger, caught = _raiser(g)
    shape = g.pick(["except", "except", "except_as", "finally", "both", "else", "nested"])
    with g.block("try:"):
        g.statements(g.rng.randint(0, 2))
        if shape == "finally":
            g.statements(1)
        elif shape == "nested":
            with g.block("try:"):
                g.line(danger)
                g.statements(1)
            with g.block("finally:"):
                g.statements(1)
        else:
            g.line(danger)
            g.statements(g.rng.randint(0, 1))
    if shape != "finally":
        name = g.fresh("e")
        with g.block(f"except {caught} as {name}:" if shape != "except" else f"except {caught}:"):
            if shape != "except" and caught == "UserError":
                g.let(INT, f"{name}.args[0]")
            elif shape != "except" and g.chance(0.4):
                g.let(STR, f"type({name}).__name__")
            g.statements(g.rng.randint(1, 2))
    if shape == "else":
        with g.block("else:"):
            g.statements(1)
    if shape in ("finally", "both"):
        with g.block("finally:"):
            g.features.add("finally")
            g.statements(g.rng.randint(1, 2))
    return True


@stmt(0.7, "raise")
def raise_out(g: Gen) -> bool:
    """A raise that leaves the function on some inputs; effects before it must stay."""
    if g.blocks > 2:
        return False
    g.may_raise = True
    cond = g.pick(["{0} and CALL[0] == {1}", "CALL[0] > {1} or ({0} and CALL[0] > 0)"]).format(g.expr("bool", 1), g.pick(["0", "1", "2"]))
    with g.block(f"if {cond}:"):
        g.statements(1)
        g.line(g.pick([f"raise UserError({g.expr('int', 1)})", "raise ValueError('out')",
                       f"raise UserError({g.expr('str', 0)}, 2) from ValueError('cause')",
                       "raises(0)", "raise KeyError('k')", "raise UserError"]))  # fmt: skip
    return True


@stmt(2, "with")
def with_block(g: Gen) -> bool:
    if not room(g):
        return False
    name = g.fresh("m")
    head = g.pick([f"with Logged(LOG, {g.expr('str', 0)}):", f"with Logged(LOG, 'm') as {name}:",
                   f"with scoped(LOG, {g.expr('int', 0)}) as {name}:",
                   "with contextlib.nullcontext():", f"with Logged(LOG, 'x') as {name}, scoped(LOG, 1):",
                   "with Logged(LOG, 'sw', swallow=True):",
                   f"with contextlib.nullcontext({g.expr('int', 0)}) as {name}:",
                   "with contextlib.suppress(UserError, ZeroDivisionError):"])  # fmt: skip
    with g.block(head):
        if ("scoped" in head and "as" in head and "Logged" not in head) or ("nullcontext(" in head and " as " in head):
            g.scopes.declare(Var(name, INT))
        g.statements(g.rng.randint(1, 3))
        if "swallow" in head or "suppress" in head:
            g.line(f"if {g.expr('bool', 1)}:\n    raise UserError('inside')")
    return True


@stmt(1.2, "nograd")
def grad_block(g: Gen) -> bool:
    if not room(g):
        return False
    head = g.pick(["with torch.no_grad():", "with torch.no_grad():", "with torch.enable_grad():",
                   f"with torch.set_grad_enabled({g.expr('bool', 0)}):"])
    with g.block(head):
        g.statements(g.rng.randint(1, 2))
    return True


@stmt(2, "closure")
def nested_function(g: Gen) -> bool:
    if not room(g) or g.blocks > 2:
        return False
    name, a, k = g.fresh("fn"), g.fresh("a"), g.fresh("k")
    _, ty, _ = g.tensor_expr(0)
    if ty.dtype != "f":
        return False
    default = g.expr("int", 1)
    outer = [v for v in g.scopes.rebindable() if v.ty == INT and v.name not in g.args] if "nonlocal" in g.families else []
    with g.block(f"def {name}({a}, {k}={default}):", 2, function=True):
        if "globals" in g.families:
            g.line("global G0, G3")
        if outer:
            var = g.pick(outer)
            g.line(f"nonlocal {var.name}\n{var.name} += {g.pick(['1', k])}")
            g.features.add("nonlocal")
        g.scopes.declare(Var(a, ty, False))
        g.scopes.declare(Var(k, INT))
        g.budget = max(g.budget, 1)
        saved, g.loops = g.loops, 0
        g.statements(g.rng.randint(0, 2))
        g.loops = saved
        g.line(f"return {a} * {g.expr('int', 1)} + {g.tensor_like(ty.shape, 'f', 0)}")
    arg = g.tensor_like(ty.shape, "f", 0)
    calls = [f"{name}({arg})", f"{name}({arg}, {g.expr('int', 1)})", f"{name}({k}={g.expr('int', 0)}, {a}={arg})", f"{name}({name}({arg}))"]
    g.let(ty, g.pick(calls), False, stem="t")
    g.scopes.declare(Var(name, Ty("fn"), rebind=False))
    return True


@stmt(1, "nonlocal")
def local_counter(g: Gen) -> bool:
    if g.blocks > 2:
        return False
    c, name = g.fresh("cell"), g.fresh("fn")
    g.line(f"{c} = {g.expr('int', 1)}\ndef {name}():\n    nonlocal {c}\n    {c} += 1\n    return {c}")
    g.scopes.declare(Var(c, INT))
    g.let(INT, g.pick([f"{name}() + {name}()", f"{name}()", f"[{name}() for _ in range(2)][1]"]))
    return True


@stmt(0.8, "generator")
def local_generator(g: Gen) -> bool:
    name = g.fresh("gn")
    g.line(g.pick([f"{name} = counted(3)", f"{name} = (q * {g.expr('int', 0)} for q in range(3))", f"{name} = chained(1)"]))
    g.let(INT, g.pick([f"next({name})", f"sum({name})", f"next({name}) + next({name}, 7)", f"list({name})[0]"]))
    return True


@stmt(1.2, "opt")
def optional_arg(g: Gen) -> bool:
    var = g.some("opt")
    if var is None or not room(g):
        return False
    with g.block(f"if {var.name} is {g.pick(['None', 'not None'])}:"):
        if g.lines[-1].endswith("is not None:"):
            g.scopes.declare(Var(var.name, var.ty.elems[0], False, rebind=False))
        g.statements(g.rng.randint(1, 2))
    return True


@stmt(1, "match")
def match_stmt(g: Gen) -> bool:
    if not room(g):
        return False
    subject = g.pick([g.expr("int", 1), g.expr("str", 1), f"({g.expr('int', 0)}, {g.expr('str', 0)})"])
    name = g.fresh("mt")
    with g.block(f"match {subject}:"):
        for pattern in ("0 | 1", "'a'", f"(int() as {name}, _)", "_"):
            with g.block(f"case {pattern}:"):
                if name in pattern:
                    g.scopes.declare(Var(name, INT))
                g.statements(1)
    return True


@stmt(7, "print")
def print_stmt(g: Gen) -> bool:
    kind = g.pick(["int", "float", "str", "bool"])
    lst = g.some("list", lambda v: v.ty.elems[0] in (INT, STR, FLOAT))
    forms = [f"print({g.expr(kind, 1)})", f"print('p', {g.expr('int', 0)}, sep='-')", f"print({g.expr('str', 0)}, end=';')"]
    if lst is not None:
        forms.append(f"print({lst.name})")
    ten = g.some("tensor")
    if ten is not None:
        forms += [f"print({ten.name}.dtype)", f"print({ten.name})", f"{g.fresh('pr')} = chatty({ten.name}, {g.expr('int', 0)})"]
    g.line(g.pick(forms))
    return True


@stmt(6, "opaque")
def opaque_stmt(g: Gen) -> bool:
    i = g.expr("int", 1)
    lst = g.some("list", lambda v: v.ty.elems[0] == INT)
    forms = [(f"hidden_int({i})", INT), (f"hidden_int({i}) + {g.expr('int', 1)} * 2", INT),
             (f"{g.expr('int', 1)} - hidden_int({i}) % 3", INT),
             (f"[hidden_int(q) for q in range(2)][{i} % 2]", INT)]  # fmt: skip
    if lst is not None:
        forms.append((f"hidden_append({lst.name}, {i})", INT))
    obj = g.some("obj", lambda v: v.ty.name in ("Box", "SubBox"))
    if g.chance(0.3):
        bare = [f"hidden_int({i})", f"try:\n    hidden_raise({i})\nexcept UserError as e:\n    LOG.append(e.args)",
                f"try:\n    {g.fresh('z')} = hidden_int({i})\nfinally:\n    LOG.append(hidden_int(9))",
                f"with NoisyManager() as {g.fresh('m')}:\n    LOG.append({i})"]  # fmt: skip
        bare += [f"hidden_set({obj.name}, {i})"] if obj else []
        bare += [f"hidden_global({i})"] if "globals" in g.families else []
        ten = g.some("tensor", lambda v: v.inplace and v.ty.dtype == "f")
        bare += [f"hidden_inplace({ten.name})"] if ten and "inplace" in g.families else []
        g.line(g.pick(bare))
        return True
    text, ty = g.pick(forms)
    g.let(ty, text)
    return True


@stmt(5, "datadep")
def data_branch(g: Gen) -> bool:
    var = g.some("tensor")
    if var is None or not room(g):
        return False
    name = var.name + (".float()" if var.ty.dtype != "f" else "")
    with g.block(f"if {g.pick(['{0}.sum() > 0', '({0} > 0.5).any()', 'bool({0}.mean() < 1)']).format(name)}:"):
        g.statements(g.rng.randint(1, 2))
    with g.block("else:"):
        g.statements(1)
    return True


@stmt(0.5, "loop")
def early_return(g: Gen) -> bool:
    """A return in the middle, in whatever block this is."""
    if any(s.function for s in g.scopes.stack[1:]):
        return False
    var = g.some("tensor")
    if var is None:
        return False
    g.line(f"if {g.expr('bool', 1)} and CALL[0] == {g.pick(['1', '2'])}:\n    return ({var.name}, {g.expr('int', 1)})")
    g.features.add("early_return")
    return True
