"""From an ATen graph to definitions: what is computed into memory, what is left to ATen.

In: a functional graph past AOTAutograd, with example values in `meta["val"]`. Out: `LoweredGraph`: buffers and an
ordered list of `Definition`s (to be scheduled into kernels) and `AtenCall`s. A lowering of the table turns an
operator's arguments into a lazy tensor; an operator without one, or one that raises `NotLowered`, is called.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
import torch.fx

from .exprs import Exprs, Read
from .ir import Buffer, DType, Expr, Op, text, walk
from .tensors import LazyTensor, contiguous, from_buffer, sympy_of, variables

LOWERINGS: dict[Any, Callable[..., Any]] = {}
EXPENSIVE = frozenset((
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid pow div sqrt rsqrt atan2 hypot"
).split())
MAX_OPERATIONS, MAX_READS = 64, 12


class NotLowered(Exception):
    """This call of an operator is left to ATen; the text says why."""


def lowers(*targets: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a lowering: fn(lowering, *args, **kwargs) of the operator's arguments gives a LazyTensor, or a tuple of them."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            for overload in [getattr(target, o) for o in target.overloads()] if isinstance(target, torch._ops.OpOverloadPacket) else [target]:
                LOWERINGS[overload] = fn
        return fn

    return register


@dataclasses.dataclass(eq=False)
class Definition:
    """buffer[d0, …] = value, or its fold of kind `kind` over the inner variables that follow the outer ones.

    sizes: of the outer variables (the buffer's, 1 where elements share memory and there are some); inner: of the folded ones.
    """

    buffer: Buffer
    sizes: tuple[sympy.Expr, ...]
    value: Expr
    kind: str = ""
    inner: tuple[sympy.Expr, ...] = ()
    origins: tuple[str, ...] = ()

    def __str__(self) -> str:
        value, kept = text(self.value), len(self.sizes)
        folded = ", ".join(f"{v} < {n}" for v, n in zip(variables(kept + len(self.inner))[kept:], self.inner, strict=True))
        return f"{self.buffer.name}[{', '.join(map(str, variables(kept)))}] = " + (f"{self.kind} over ({folded}) of {value}" if self.kind else value)


@dataclasses.dataclass(eq=False)
class CheckDefinition(Definition):
    """Every element must be in [0, limit), else the graph raises; the buffer has no memory, it names the check (`ir.Check`)."""

    limit: sympy.Expr = sympy.Integer(0)
    error: tuple[str, str] = ("", "")
    wraps: bool = False


@dataclasses.dataclass(eq=False)
class AtenCall:
    """target(*args, **kwargs), where Buffers stand for tensors and sympy expressions for integers.

    outs: a Buffer, a sympy expression (an integer that it returns), None, or a nested tuple of those.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: Any
    why: str
    origins: tuple[str, ...] = ()

    def __str__(self) -> str:
        outs, args = (", ".join(b.name for b in buffers_in(part)) for part in ((self.outs,), (self.args, tuple(self.kwargs.values()))))
        return f"{outs} = {self.target}({args})    ATen: {self.why}"

    def written(self) -> list[Buffer]:
        """The arguments that it changes."""
        arguments = self.target._schema.arguments
        named = {**dict(zip((a.name for a in arguments), self.args, strict=False)), **self.kwargs}
        return [b for a in arguments if a.alias_info is not None and a.alias_info.is_write for b in buffers_in(named.get(a.name))]


def buffers_in(value: Any) -> Iterator[Buffer]:
    if isinstance(value, Buffer):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from buffers_in(v)


@dataclasses.dataclass(eq=False)
class ViewOf:
    """buffer is a view of base, `offset` elements behind its start."""

    buffer: Buffer
    base: Buffer
    offset: sympy.Expr

    def __str__(self) -> str:
        return f"{self.buffer.name} = a view of {self.base.name}"


Step = Definition | AtenCall | ViewOf


@dataclasses.dataclass
class LoweredGraph:
    inputs: list[Any]                       # Buffers, sympy symbols, or None for what is never used
    steps: list[Step]
    outputs: list[Any]                      # Buffers, sympy expressions, numbers or None
    buffers: dict[str, Buffer]
    exprs: Exprs
    constants: list[tuple[Buffer, torch.Tensor]]
    base: dict[str, str]                    # a view's buffer -> the buffer whose memory it shows


class GraphLowering:
    """Walks the graph once; `node` is the operator being lowered."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.gm = gm
        self.exprs = Exprs()
        self.steps: list[Step] = []
        self.buffers: dict[str, Buffer] = {}
        self.env: dict[torch.fx.Node, Any] = {}
        self.node: torch.fx.Node = next(iter(gm.graph.nodes))
        self.inputs: list[Any] = []
        self.constants: list[tuple[Buffer, torch.Tensor]] = []
        self.owner: dict[str, torch.fx.Node] = {}       # buffer -> the node whose value it was made for
        self.base: dict[str, str] = {}                  # a view's buffer -> the buffer whose memory it shows
        self.checked: set[Any] = set()                  # what `check` has been asked for, since memory last changed
        self.order = {node: i for i, node in enumerate(gm.graph.nodes)}
        self.last_use = _last_uses(self.order)

    def run(self) -> LoweredGraph:
        outputs: list[Any] = []
        for node in self.gm.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                self.env[node] = self._input(node)
            elif node.op == "get_attr":
                self.env[node] = self._constant(node)
            elif node.op == "output":
                outputs = [self._output(a) for a in torch.fx.node.map_arg(node.args[0], lambda n: n)]
            else:
                self.env[node] = self._call(node)
        return LoweredGraph(self.inputs, self.steps, outputs, self.buffers, self.exprs, self.constants, self.base)

    # -- nodes --------------------------------------------------------------------------------------
    def _input(self, node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and type(value).__name__ in ("FakeTensor", "Tensor", "Parameter"):
            buffer = self.new_buffer(value, "input")
            self.inputs.append(buffer)
            return from_buffer(self.exprs, buffer) if buffer.dtype is not None else buffer
        if value is None and "val" in node.meta:
            self.inputs.append(None)
            return None
        expr = sympy_of(value) if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool) else None
        if expr is None:
            raise NotLowered(f"an input of type {type(value).__name__}")
        self.inputs.append(expr)
        return expr

    def _constant(self, node: torch.fx.Node) -> Any:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or DType.of(value.dtype) is None:
            raise NotLowered(f"the graph holds a {type(value).__name__}, {node.target}")
        buffer = self.new_buffer(value, "constant")
        self.constants.append((buffer, value))
        node.meta.setdefault("val", value)
        return from_buffer(self.exprs, buffer)

    def _call(self, node: torch.fx.Node) -> Any:
        target = node.target
        if target is torch.ops.aten.sym_size.int or not isinstance(target, torch._ops.OpOverload):
            return self._python_call(node)
        why = self._why_aten(node, target)
        if not why:
            try:
                args, kwargs = torch.fx.node.map_arg(node.args, self._value), torch.fx.node.map_arg(node.kwargs, self._value)
                return self._bounded(LOWERINGS[target](self, *args, **kwargs))
            except NotLowered as err:
                why = str(err)
        return self.aten_call(node, why)

    def _python_call(self, node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, (int, torch.SymInt)):
            return sympy_of(value)
        if node.target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]  # type: ignore[index]
        raise NotLowered(f"a call of {node.target}")

    def _why_aten(self, node: torch.fx.Node, target: Any) -> str:
        if target not in LOWERINGS:
            return "no lowering"
        for value in (node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, torch.Tensor):
                    if DType.of(tensor.dtype) is None:
                        return f"dtype {tensor.dtype}"
                    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
                        return f"layout {tensor.layout}"
        return ""

    def _value(self, node: torch.fx.Node) -> Any:
        return self.env[node]

    def _output(self, value: Any) -> Any:
        """A tensor of its own for every operator but views: a clone may not be what it was cloned from."""
        if not isinstance(value, torch.fx.Node):
            return value
        lowered = self.env[value]
        if not isinstance(lowered, LazyTensor):
            return lowered
        return self._shown(value, own=True)

    def _shown(self, node: torch.fx.Node, own: bool) -> Buffer:
        """The buffer of a value; own: of which views may become results."""
        root = self._view_root(node) if own else node
        if root is not node and isinstance(self.env.get(root), LazyTensor):
            return self._view_of(self._own(root), root.meta["val"], node.meta["val"])
        return self._own(node) if own else self.placed(node)

    def _own(self, node: torch.fx.Node) -> Buffer:
        """The buffer of a result, or of what results are views of."""
        lowered = self.env[node]
        if isinstance(lowered.value, Read) and not shows_memory(node) and self.owner[lowered.value.buffer] is not node:
            made = self.new_buffer(node.meta["val"], "made")
            self.define(made, lowered.value, origins=(node.name,))
            self.env[node] = from_buffer(self.exprs, made)
            self.owner[made.name] = node
        return self.placed(node)

    def _view_root(self, node: torch.fx.Node) -> torch.fx.Node:
        """The node whose memory a view shows; what ATen made shows the right memory already."""
        while is_view(node) and node.op == "call_function" and node.args and isinstance(node.args[0], torch.fx.Node):
            lowered = self.env[node]
            if isinstance(lowered, LazyTensor) and lowered.buffer is not None and lowered.buffer.kind == "aten":
                break
            if node.target is operator.getitem and not is_view(node.args[0]):
                break
            node = node.args[0]
        return node

    def _view_of(self, base: Buffer, whole: torch.Tensor, part: torch.Tensor) -> Buffer:
        """A view of an operator's result shares its memory, as in eager."""
        name = f"v{len(self.buffers)}"
        sizes, strides = tuple(map(sympy_of, part.size())), tuple(map(sympy_of, part.stride()))
        made = self.buffers[name] = Buffer(name, base.dtype, sizes, strides, "view", base.device)
        self.owner[name], self.base[name] = self.owner[base.name], base.name
        self.steps.append(ViewOf(made, base, sympy_of(part.storage_offset()) - sympy_of(whole.storage_offset())))
        return made

    def placed(self, node: torch.fx.Node) -> Buffer:
        """The buffer of a node's value, from now on."""
        before = len(self.buffers)
        buffer = self.in_memory(self.env[node], node.meta["val"], (node.name,))
        if buffer is not self.env[node].buffer:
            self.env[node] = from_buffer(self.exprs, buffer)
            if len(self.buffers) > before and buffer.kind == "made":       # else it shows the memory of what the node is a copy of
                self.owner[buffer.name] = node
        return buffer

    # -- memory -------------------------------------------------------------------------------------
    def new_buffer(self, example: torch.Tensor, kind: str) -> Buffer:
        """A buffer with the sizes and strides of the example. Types no kernel handles get dtype None and only go to ATen."""
        name = f"{'in' if kind == 'input' else 'b'}{len(self.buffers)}"
        sizes, strides = tuple(map(sympy_of, example.size())), tuple(map(sympy_of, example.stride())) if example.layout is torch.strided else ()
        made = Buffer(name, DType.of(example.dtype), sizes, strides, kind, example.device)  # type: ignore[arg-type]
        self.buffers[name] = made
        self.owner[name] = self.node
        return made

    def temporary(self, sizes: tuple[sympy.Expr, ...], dtype: DType, device: torch.device) -> Buffer:
        name = f"b{len(self.buffers)}"
        made = self.buffers[name] = Buffer(name, dtype, sizes, contiguous(sizes), "made", device)
        self.owner[name] = self.node
        return made

    def define(self, buffer: Buffer, value: Expr, kind: str = "", inner: tuple[sympy.Expr, ...] = (), origins: tuple[str, ...] = ()) -> None:
        shared = [stride == 0 and size.is_positive is True for size, stride in zip(buffer.sizes, buffer.strides, strict=True)]
        sizes = tuple(sympy.Integer(1) if one else size for size, one in zip(buffer.sizes, shared, strict=True))
        self.steps.append(Definition(buffer, sizes, value, kind, inner, origins or (self.node.name,)))

    def check(self, tensor: LazyTensor, limit: sympy.Expr, error: tuple[str, str], wraps: bool = False) -> None:
        """The graph raises from here on unless every element is in [0, limit)."""
        key = (id(tensor.value), tensor.sizes, limit, wraps)
        if key in self.checked:
            return
        self.checked.add(key)
        name = f"c{len(self.buffers)}"
        made = self.buffers[name] = Buffer(name, DType.i64, (), (), "check", tensor.device)
        self.owner[name] = self.node
        self.steps.append(CheckDefinition(made, tensor.sizes, tensor.value, origins=(self.node.name,), limit=limit, error=error, wraps=wraps))

    def in_memory(self, tensor: LazyTensor, example: torch.Tensor | None = None, origins: tuple[str, ...] = ()) -> Buffer:
        """The buffer that holds the tensor, laid out as the example (row-major without one); computed into one where needed."""
        buffer = tensor.buffer
        if buffer is not None and (example is None or _same_layout(buffer, example)):
            return buffer
        viewed = self._view(tensor, example)
        if viewed is not None:
            return viewed
        made = self.new_buffer(example, "made") if example is not None else self.temporary(tensor.sizes, tensor.dtype, tensor.device)
        self.define(made, tensor.value, origins=origins)
        return made

    def _view(self, tensor: LazyTensor, example: torch.Tensor | None) -> Buffer | None:
        """The tensor as a strided view of the buffer that it reads, if it is one with the example's layout."""
        value = tensor.value
        if not isinstance(value, Read) or value.indirect:
            return None
        base = self.buffers[value.buffer]
        place = sympy.expand(sum((i * s for i, s in zip(value.index, base.strides, strict=True)), sympy.Integer(0)))
        strides = tuple(sympy.Integer(0) if n == 1 else place.coeff(v) for v, n in zip(variables(tensor.ndim), tensor.sizes, strict=True))
        offset = sympy.expand(place - sum((s * v for s, v in zip(strides, variables(tensor.ndim), strict=True)), sympy.Integer(0)))
        if offset.free_symbols & set(variables(tensor.ndim)) or any(s.free_symbols & set(variables(tensor.ndim)) for s in strides):
            return None
        if any(s.is_negative for s in strides):
            return None
        name = f"v{len(self.buffers)}"
        if example is not None:
            wanted = tuple(map(sympy_of, example.stride()))
            if any(a != b and n != 1 for a, b, n in zip(strides, wanted, tensor.sizes, strict=True)):
                return None
            strides = wanted
        if offset == 0 and base.sizes == tensor.sizes and base.strides == strides:
            return base
        made = self.buffers[name] = Buffer(name, tensor.dtype, tensor.sizes, strides, "view", tensor.device)
        self.owner[name], self.base[name] = self.owner[base.name], base.name
        self.steps.append(ViewOf(made, base, offset))
        return made

    def realized(self, tensor: LazyTensor, example: torch.Tensor | None = None) -> LazyTensor:
        return from_buffer(self.exprs, self.in_memory(tensor, example))

    def _bounded(self, result: Any) -> Any:
        """Keep expressions small, and compute once what is dear and used by several."""
        if not isinstance(result, LazyTensor) or result.buffer is not None:
            return result
        parts = list(walk(result.value))
        operations = [e for e in parts if isinstance(e, Op)]
        reads = sum(isinstance(e, Read) for e in parts)
        dear = len(self.node.users) > 1 and (any(e.name in EXPENSIVE for e in operations) or _scattered(parts, result.ndim))
        if dear or len(operations) > MAX_OPERATIONS or reads > MAX_READS:
            return self.realized(result, self.node.meta["val"])
        return result

    def before_write(self, written: list[Buffer]) -> None:
        """An operator is about to change these buffers: what later nodes read of them is copied now."""
        self.checked.clear()
        changed = {self.root(b.name) for b in written}
        for node, value in list(self.env.items()):
            if node.op == "placeholder" or not isinstance(value, LazyTensor) or self.last_use.get(node, -1) <= self.order[self.node]:
                continue
            if any(isinstance(e, Read) and self.root(e.buffer) in changed for e in walk(value.value)):
                made = self.new_buffer(node.meta["val"], "made")
                self.define(made, value.value, origins=(node.name,))
                self.env[node] = from_buffer(self.exprs, made)
                self.owner[made.name] = node

    def root(self, buffer: str) -> str:
        """The buffer whose memory a buffer shows."""
        while buffer in self.base:
            buffer = self.base[buffer]
        return buffer

    # -- ATen ---------------------------------------------------------------------------------------
    def aten_call(self, node: torch.fx.Node, why: str) -> Any:
        def prepared(arg: Any) -> Any:
            if isinstance(arg, torch.fx.Node):
                return self._shown(arg, is_view(node)) if isinstance(self.env[arg], LazyTensor) else self.env[arg]
            return arg

        args, kwargs = torch.fx.node.map_arg(node.args, prepared), torch.fx.node.map_arg(node.kwargs, prepared)
        target: Any = node.target
        outs = self._results(node.meta.get("val"))
        call = AtenCall(target, tuple(args), dict(kwargs), outs, why, (node.name,))
        if call.written():
            self.before_write(call.written())
        if is_view(node):
            shown = next(buffers_in(args), None)
            self.base.update({b.name: shown.name for b in buffers_in(outs)} if shown is not None else {})
        self.steps.append(call)
        return self._lazy(outs)

    def _results(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.new_buffer(value, "aten")
        if isinstance(value, (list, tuple)):
            return tuple(map(self._results, value))
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return sympy_of(value)
        if value is None:
            return None
        raise NotLowered(f"{self.node.target} returns a {type(value).__name__}")

    def _lazy(self, outs: Any) -> Any:
        if isinstance(outs, tuple):
            return tuple(map(self._lazy, outs))
        return from_buffer(self.exprs, outs) if isinstance(outs, Buffer) and outs.dtype is not None else outs


def is_view(node: torch.fx.Node) -> bool:
    """Is the node's value part of another node's by meaning?"""
    if node.op == "placeholder" or node.target is operator.getitem:
        return True
    returns: list[Any] = node.target._schema.returns if isinstance(node.target, torch._ops.OpOverload) else []
    return bool(returns) and returns[0].alias_info is not None


def shows_memory(node: torch.fx.Node) -> bool:
    """`is_view`, but one of several results only where those are views."""
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return shows_memory(node.args[0])
    return is_view(node)


def _last_uses(order: dict[torch.fx.Node, int]) -> dict[torch.fx.Node, int]:
    """The last place where each node's value is needed; a result that is a view needs what it shows."""
    last = {arg: i for node, i in order.items() for arg in node.all_input_nodes}
    for node in reversed(order):
        shown = node.args[0] if node.op == "call_function" and is_view(node) and node.args else None
        if isinstance(shown, torch.fx.Node) and last.get(node) == len(order) - 1:
            last[shown] = last[node]
    return last


def _scattered(parts: list[Expr], ndim: int) -> bool:
    """Is something read at places that memory's order doesn't give, as a gather's are along the last dimension? Rows of a table are not."""
    last = variables(ndim)[-1:]
    places = [e for p in parts if isinstance(p, Read) for e in walk(*p.args)]
    return any(v in i.free_symbols for e in places if isinstance(e, Read) for i in e.index for v in last)


def _same_layout(buffer: Buffer, example: torch.Tensor) -> bool:
    sizes, strides = tuple(map(sympy_of, example.size())), tuple(map(sympy_of, example.stride()))
    return buffer.sizes == sizes and all(a == b or n == 1 for a, b, n in zip(buffer.strides, strides, sizes, strict=True))


__all__ = ["LOWERINGS", "AtenCall", "Definition", "GraphLowering", "LoweredGraph", "NotLowered", "lowers", "variables"]
