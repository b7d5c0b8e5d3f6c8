"""Tensor expression writers: text, static type, and whether the result may be written to in place.

In: the generator state. Out: `(text, Ty, inplace)` or None. Registered in `core.EXPRS["tensor"]`. Shapes are tracked
symbolically: the dimension "N" changes between calls, the others are fixed.
"""

from __future__ import annotations

from .core import Gen, expr
from .scope import Dim, Ty, Var, tensor

Made = tuple[str, Ty, bool] | None


def operand(g: Gen, depth: int, dtype: str = "f") -> tuple[str, Ty, bool]:
    """A tensor of the wanted dtype class, converted when it has another."""
    text, ty, inplace = g.tensor_expr(depth)
    if ty.dtype != dtype and dtype == "f":
        return f"{text}.float()", tensor(ty.shape), True
    return text, ty, inplace


@expr("tensor", 4)
def t_unary(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    form = g.pick(["torch.sin({0})", "{0}.cos()", "{0}.tanh()", "torch.relu({0})", "{0}.sigmoid()", "-{0}", "abs({0})", "{0}.abs().sqrt()",
                   "torch.clamp({0}, -1.0, 1.0)", "{0}.clamp(min=-2)", "F.gelu({0})", "{0}.square().clamp(max=9.0)",
                   "torch.exp(-{0}.abs())",
                   "{0}.clone()", "F.relu({0})", "{0}.neg()", "torch.zeros_like({0})", "{0}.round()", "torch.ones_like({0})",
                   "{0}.new_zeros({0}.shape)", "torch.nan_to_num({0})", "{0}.mul(2)", "torch.add({0}, 1, alpha=2)",
                   "{0}.pow(2).tanh()"])  # fmt: skip
    return form.format(a), tensor(ty.shape), True


@expr("tensor", 5)
def t_scalar(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    scalar = g.expr(g.pick(["int", "int", "float", "bool"]), depth - 1)
    form = g.pick(["({0} + {1})", "({0} * {1})", "({1} - {0})", "({0} - {1})", "({0} / 2)", "({0} + {1} * 2)", "torch.mul({0}, {1})",
                   "({1} * {0})",
                   "torch.full_like({0}, {1})", "({0} / ({1} + 11.0))"])  # fmt: skip
    return form.format(a, scalar), tensor(ty.shape), True


@expr("tensor", 4)
def t_binary(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    b = g.tensor_like(ty.shape, "f", depth - 1)
    form = g.pick(["({0} + {1})", "({0} * {1})", "({0} - {1})", "torch.maximum({0}, {1})", "torch.where({0} > {1}, {0}, {1})",
                   "({0} / ({1}.abs() + 1))",
                   "torch.add({0}, {1}, alpha=2)", "({0} + 0.5 * {1})", "{0}.add({1})", "torch.minimum({0}, {1})"])  # fmt: skip
    return form.format(a, b), tensor(ty.shape), True


@expr("tensor", 2)
def t_reduce(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    if not ty.shape or g.chance(0.3):
        return g.pick(["{0}.sum()", "{0}.mean()", "torch.sum({0})", "{0}.abs().amax()", "{0}.norm()"]).format(a), tensor(()), True
    axis = g.rng.randrange(len(ty.shape))
    neg = axis - len(ty.shape)
    where = g.pick([str(axis), str(neg)])
    rest = ty.shape[:axis] + ty.shape[axis + 1 :]
    kept: tuple[Dim, ...] = (*ty.shape[:axis], 1, *ty.shape[axis + 1 :])
    if g.chance(0.3):
        return f"{a}.sum(dim={where}, keepdim=True)", tensor(kept), True
    return g.pick(["{0}.sum({1})", "{0}.mean(dim={1})", "{0}.max({1})[0]", "torch.amax({0}, {1})", "{0}.min(dim={1}).values",
                   "{0}.prod({1}).tanh()",
                   "torch.logsumexp({0}, {1})"]).format(a, where), tensor(rest), True  # fmt: skip


@expr("tensor", 1)
def t_same_axis(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    if not ty.shape:
        return None
    return g.pick(["torch.softmax({0}, -1)", "{0}.cumsum(0)", "torch.flip({0}, [0])", "{0}.sort(-1)[0]", "torch.roll({0}, 1, 0)",
                   "F.softmax({0}, dim=0)",
                   "{0}.log_softmax(-1)", "F.layer_norm({0}, {0}.shape[-1:])"]).format(a), tensor(ty.shape), True  # fmt: skip


@expr("tensor", 2.5, "views")
def t_view(g: Gen, depth: int) -> Made:
    a, ty, inplace = operand(g, depth - 1)
    shape = ty.shape
    if not shape:
        return g.pick([(f"{a}.reshape(1)", tensor((1,)), inplace), (f"{a}[None]", tensor((1,)), inplace)])
    forms: list[tuple[str, Ty, bool]] = [
        (f"{a}.unsqueeze(0)", tensor((1, *shape)), inplace), (f"{a}[None, ...]", tensor((1, *shape)), inplace),
        (f"{a}.unsqueeze(-1)", tensor((*shape, 1)), inplace), (f"{a}[0]", tensor(shape[1:]), inplace), (f"{a}[-1]", tensor(shape[1:]),
                                                                                                        inplace),
        (f"{a}[:]", tensor(shape), inplace), (f"{a}[...]", tensor(shape), inplace), (f"{a}.view_as({a})", tensor(shape), inplace),
        (f"{a}.detach()", tensor(shape), inplace), (f"{a}.select(0, 0)", tensor(shape[1:]), inplace),
        (f"{a}[::2]", tensor((f"half({shape[0]})", *shape[1:])), inplace), (f"{a}.contiguous()", tensor(shape), False),
    ]  # fmt: skip
    if g.backward:
        forms = [f for f in forms if "detach" not in f[0] and "view_as" not in f[0]]
    if len(shape) == 2:
        flipped, flat = tensor((shape[1], shape[0])), tensor((f"{shape[0]}*{shape[1]}",))
        forms += [(f"{a}.t()", flipped, inplace), (f"{a}.transpose(0, 1)", flipped, inplace), (f"{a}.T", flipped, inplace),
                  (f"{a}.permute(1, 0)", flipped, inplace), (f"{a}.reshape(-1)", flat, False), (f"{a}.flatten()", flat, False),
                  (f"{a}[:, 0]", tensor(shape[:1]), inplace), (f"{a}[..., -1]", tensor(shape[:1]), inplace),
                  (f"{a}.diagonal()", tensor(("diag",)), inplace),
                  (f"{a}.unbind(1)[0]", tensor(shape[:1]), inplace), (f"{a}.expand(2, -1, -1)", tensor((2, *shape)), False)]  # fmt: skip
    if isinstance(shape[-1], int) and shape[-1] >= 3:
        forms += [(f"{a}[..., :2]", tensor((*shape[:-1], 2)), inplace), (f"{a}.narrow(-1, 1, 2)", tensor((*shape[:-1], 2)), inplace),
                  (f"{a}[..., 1:]", tensor((*shape[:-1], shape[-1] - 1)), inplace)]  # fmt: skip
    if shape[0] == 1:
        forms += [(f"{a}.squeeze(0)", tensor(shape[1:]), inplace)]
    size = g.sized(shape[0])
    if size and len(shape) == 2:
        forms += [(f"{a}.view({size}, -1)", tensor(shape), inplace), (f"{a}.reshape(-1, {size}).reshape({size}, -1)", tensor(shape), False)]
    return g.pick(forms)


@expr("tensor", 1.5)
def t_join(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    same = g.vars("tensor", lambda v: v.ty == tensor(ty.shape))
    b = g.pick(same).name if same else a
    if g.chance(0.5):
        return g.pick([f"torch.stack([{a}, {b}])", f"torch.stack(({a}, {b}), dim=0)"]), tensor((2, *ty.shape)), True
    if not ty.shape:
        return None
    return f"torch.cat([{a}, {b}], 0)", tensor((f"2{ty.shape[0]}", *ty.shape[1:])), True


@expr("tensor", 1.5)
def t_matmul(g: Gen, depth: int) -> Made:
    var = g.some("tensor", lambda v: len(v.ty.shape) == 2 and v.ty.dtype == "f")
    if var is None or "dtype" in g.families:
        return None
    n, (p, q) = var.name, var.ty.shape
    return g.pick([(f"({n} @ {n}.t()).tanh()", tensor((p, p)), True), (f"torch.matmul({n}.T, {n}).sigmoid()", tensor((q, q)), True),
                   (f"torch.einsum('ij,kj->ik', {n}, {n}).tanh()", tensor((p, p)), True), (f"F.linear({n}, {n}).tanh()", tensor((p, p)),
                                                                                           True),
                   (f"torch.mm({n}, {n}.t()).tanh()", tensor((p, p)), True)])  # fmt: skip


@expr("tensor", 1.5)
def t_create(g: Gen, depth: int) -> Made:
    dims: list[Dim] = ["N", g.fixed]
    dim = g.pick(dims)
    size = g.sized(dim) if g.chance(0.8) else str(g.fixed)
    if size is None:
        return None
    if not size.isdigit() or size == str(g.fixed):
        shape: tuple[Dim, ...] = (dim,) if not size.isdigit() else (g.fixed,)
    else:
        return None
    form = g.pick(["torch.zeros({0})", "torch.ones({0})", "torch.arange({0}).float()", "torch.full(({0},), {1})",
                   "torch.linspace(0, 1, {0})",
                   "torch.arange({0}, dtype=torch.float32)"])  # fmt: skip
    text = form.format(size, g.pick(["0.5", "-1.5", "2.0"]))
    return text, tensor(shape), True


@expr("tensor", 1)
def t_from_scalar(g: Gen, depth: int) -> Made:
    if g.chance(0.5):
        return f"torch.tensor({g.expr('float', 0)})", tensor(()), True
    a, b = g.expr("float", 0), g.expr("int", 0)
    return f"torch.tensor([{a}, {b}, 1.0])", tensor((3,)), True


@expr("tensor", 1.5)
def t_int(g: Gen, depth: int) -> Made:
    var = g.some("tensor", lambda v: v.ty.dtype == "i")
    if var is None:
        src, ty, _ = operand(g, depth - 1)
        if not ty.shape:
            return None
        return f"{src}.argmax(-1)", tensor(ty.shape[:-1], "i"), True
    return g.pick(["({0} + {1})", "({0} * 2)", "({0} // 2)", "({0} % 3)", "({0} & 3)", "{0}.clamp(0, 2)", "(-{0})", "{0}.abs()",
                   "({0} ^ 1)",
                   "({0} - {1})"]).format(var.name, g.expr("int", 0)), var.ty, True  # fmt: skip


@expr("tensor", 1.2)
def t_bool(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    return g.pick(["({0} > 0)", "({0} <= {0}.mean())", "({0} != 0)", "torch.isnan({0})", "~({0} < 0.5)", "(({0} > -1) & ({0} < 1))",
                   "(({0} > 1) | ({0} == 0))", "torch.isfinite({0})", "{0}.bool()"]).format(a), tensor(ty.shape, "b"), True  # fmt: skip


@expr("tensor", 1)
def t_masked(g: Gen, depth: int) -> Made:
    mask = g.some("tensor", lambda v: v.ty.dtype == "b")
    if mask is None:
        a, ty, _ = operand(g, depth - 1)
        return f"{a}.masked_fill({a} > 0, {g.expr('float', 0)})", tensor(ty.shape), True
    a = g.tensor_like(mask.ty.shape, "f", 0)
    if a.startswith("torch.full"):
        return f"torch.where({mask.name}, 1.0, {g.pick(['0.0', '-2.0'])})", tensor(mask.ty.shape), True
    return f"torch.where({mask.name}, {a}, torch.zeros(()))", tensor(mask.ty.shape), True


@expr("tensor", 1)
def t_container(g: Gen, depth: int) -> Made:
    var = g.some("list", lambda v: v.ty.elems[0].kind == "tensor") or g.some("dict", lambda v: v.ty.elems[0].kind == "tensor")
    if var is None:
        return None
    elem = var.ty.elems[0]
    if var.ty.kind == "dict":
        g.features.add("dict")
        return g.pick([f"{var.name}['a']", f"{var.name}['b']", f"sum({var.name}.values())", f"list({var.name}.values())[0]"]), elem, False
    g.features.add("list")
    return g.pick([f"{var.name}[0]", f"{var.name}[-1]", f"sum({var.name})", f"torch.stack({var.name}).sum(0)",
                   f"functools.reduce(torch.add, {var.name})",
                   f"{var.name}[{g.expr('int', 0)} % len({var.name})]", f"next(iter({var.name}))"]), elem, False  # fmt: skip


def _obj_call(g: Gen, var: Var, depth: int) -> Made:
    n = var.name
    a, ty, _ = operand(g, depth - 1)
    if var.ty.name == "Slotted":
        return f"({a} * {n}.a)", tensor(ty.shape), True
    if var.ty.name == "Point":
        return f"({a} * {n}.px + {n}.py)", tensor(ty.shape), True
    forms = [f"{n}.scale({a})", f"{n}.half({a})", f"({a} * {n}.n)", f"{n}.keep({a})", f"({a} + {n}.t)",
             f"{n}.shift({a}, by={g.expr('int', 0)})"]
    if g.on("dunder"):
        forms += [f"{n}({a})", f"({n} @ {a})", f"({a} * (1 if {n} else 2))", f"({n} * {a})"]
    return g.pick(forms), tensor(ty.shape), True


@expr("tensor", 3)
def t_object(g: Gen, depth: int) -> Made:
    var = g.some("obj")
    return _obj_call(g, var, depth) if var else None


@expr("tensor", 3, "module")
def t_module(g: Gen, depth: int) -> Made:
    var = g.some("module")
    arg = g.some("tensor", lambda v: len(v.ty.shape) == 2 and v.ty.shape[-1] == g.fixed and v.ty.dtype == "f")
    if var is None or arg is None or "dtype" in g.families:
        return None
    n = var.name
    return g.pick([f"{n}({arg.name})", f"{n}({arg.name}, flag={g.expr('bool', 0)})", f"{n}.lin({arg.name})", f"{n}.forward({arg.name})",
                   f"{n}.layers[0]({arg.name})", f"torch.relu({n}({arg.name}))"]), tensor(arg.ty.shape), True  # fmt: skip


@expr("tensor", 2.5)
def t_function(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    i, b = g.expr("int", depth - 1), g.expr("float", 0)
    forms = ["helper({a}, {i})", "helper({a}, k={i})", "helper({a})"]
    if g.on("defaults"):
        forms += ["with_default({a})", "with_default({a}, {i})", "with_default({a}, acc=[{i}])", "kwonly({a}, k={i})"]
    if g.on("varargs"):
        forms += ["variadic({a}, {i}, 2)", "variadic({a}, *[1, {i}])", "variadic({a}, scale={b})",
                  "variadic({a}, *(1, 2), **{{'scale': 0.5, 'z': {i}}})"]
    if g.on("closure"):
        forms += ["ADD_TWO({a})", "make_adder({i})({a})", "COUNTED({a})"]
    if g.on("recursion"):
        forms += ["rec({a}, {i} % 4)"]
    if g.on("generator"):
        forms += ["sum(parts({a}, 2))", "sum(p * 2 for p in parts({a}, 3))"]
    if g.on("functional"):
        forms += ["functools.partial(helper, k={i})({a})", "compose(torch.sin, helper)({a})", "(lambda q: q * {i})({a})", "decorated({a})",
                  "sum(map(torch.tanh, [{a}, {a}]))", "DISPATCH['neg']({a})"]  # fmt: skip
    if g.on("globals"):
        forms += ["({a} + G0)", "({a} * GT.sum())", "({a} + G1[0])", "uses_global({a})"]
    return g.pick(forms).format(a=a, i=i, b=b), tensor(ty.shape), True


@expr("tensor", 5, "opaque")
def t_opaque(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    b = g.tensor_like(ty.shape, "f", depth - 1)
    obj = g.some("obj", lambda v: v.ty.name in ("Box", "SubBox"))
    if obj and g.chance(0.3):
        return f"{obj.name}.odd({a})", tensor(ty.shape), True
    return g.pick(["hidden({a})", "breaks_inside({a}, {i})", "sum(hidden_parts({a}))", "sum([q * 2 for q in hidden_parts({a})])",
                   "({a} + hidden({b}))", "(hidden({b}) * {a} - 1)", "helper(hidden({a}), {i})",
                   "torch.maximum({a}, hidden({b}, {i}))"]).format(a=a, b=b, i=g.expr("int", 0)), tensor(ty.shape), True  # fmt: skip


@expr("tensor", 1, "rng")
def t_rng(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    return g.pick(["({0} + torch.rand_like({0}))", "F.dropout({0}, 0.5)", "F.dropout({0}, 0.5, training=False)",
                   "({0} + torch.randn(()))"]).format(a), \
        tensor(ty.shape), True  # fmt: skip


@expr("tensor", 1, "dtype")
def t_dtype(g: Gen, depth: int) -> Made:
    a, ty, _ = operand(g, depth - 1)
    return g.pick(["{0}.double().float()", "{0}.to(torch.float32)", "{0}.type(torch.float32)", "{0}.int().float()", "({0} > 0).float()",
                   "{0}.to({0}.dtype)", "{0}.half().float()"]).format(a), tensor(ty.shape), True  # fmt: skip


@expr("tensor", 1)
def t_choice(g: Gen, depth: int) -> Made:
    a = g.some("tensor", lambda v: v.ty.dtype == "f")
    if a is None:
        return None
    b = g.tensor_like(a.ty.shape, "f", 0)
    if b.startswith("torch.full"):
        return None
    var = g.vars("tensor", lambda v: v.name == b)
    if not var or var[0].ty.shape != a.ty.shape:
        return None
    return f"({a.name} if {g.expr('bool', depth - 1)} else {b})", a.ty, a.inplace and var[0].inplace
