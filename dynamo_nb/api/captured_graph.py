"""The graph module of a captured program: how it is written and how it is called.

In: a finished trace and the call it captured. Out: a `torch.fx.GraphModule` with one placeholder for each
leaf of the arguments, parameters and buffers under their original names. Called by `api.capture`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree

from ..core.source import AttrSource, NumpyTensorSource, Source, TensorPropertySource
from ..cpython.assemble import decode
from ..graph.resume import original_code

CONSTANTS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...), range)


@dataclasses.dataclass(frozen=True)
class Slot:
    """Stands for the index-th output of the captured graph; in a torch.Size by a number no size can be."""

    index: int

    def __index__(self) -> int:
        return -1 - self.index


class Leaf:
    """Stands for a leaf of the arguments, or (index -1) for something read off one."""

    def __init__(self, index: int, path: str) -> None:
        self.index = index
        self.path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Leaf(-1, f"{self.path}.{name}")

    def __call__(self, *args: Any) -> Leaf:
        return Leaf(-1, f"{self.path}({', '.join(map(repr, args))})")

    def __index__(self) -> int:
        if self.index < 0:
            raise TypeError(f"{self.path} is no number")
        return FIRST_LEAF - self.index


FIRST_LEAF = -(1 << 40)


def marker(number: int) -> Any:
    """What a number in a torch.Size stands for."""
    if number <= FIRST_LEAF:
        return Leaf(FIRST_LEAF - number, "")
    return Slot(-1 - number) if number < 0 else number


@dataclasses.dataclass(eq=False)
class Calling:
    """How a captured program takes its arguments and gives its result.

    fixed: leaf index -> the constant the program was made for. same: pairs of leaves that were one tensor.
    sizes: which leaves of the result are a torch.Size.
    """

    in_spec: Any
    out_spec: Any
    signature: inspect.Signature | None
    fixed: dict[int, Any]
    same: list[tuple[int, int]]
    names: list[str]
    sizes: frozenset[int]

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The graph's inputs: from arguments as the callable takes them, or already flattened."""
        flat = self._structured(args, kwargs)
        if flat is None:
            if kwargs or len(args) != len(self.names):
                raise TypeError(
                    f"the exported program takes arguments of the structure {self.in_spec}, or their {len(self.names)} leaves; "
                    f"got {pytree.tree_structure((args, kwargs))}"
                )
            flat = list(args)
        for i, value in self.fixed.items():
            if type(flat[i]) is not type(value) or (flat[i] != value and value == value):
                raise ValueError(f"{self.names[i]} was {value!r} when the program was exported and is part of it; got {flat[i]!r}")
        for first, second in self.same:
            if flat[first] is not flat[second]:
                raise ValueError(f"{self.names[first]} and {self.names[second]} were one tensor when the program was exported")
        return flat

    def _structured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        if self.signature is not None:
            try:
                bound = self.signature.bind(*args, **kwargs)
            except TypeError:
                return None
            args, kwargs = bound.args, bound.kwargs
        flat, spec = pytree.tree_flatten((args, kwargs))
        return flat if spec == self.in_spec else None

    def result(self, flat: Any) -> Any:
        return pytree.tree_unflatten([torch.Size(v) if i in self.sizes else v for i, v in enumerate(flat)], self.out_spec)

    def attach(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Make `module(*args, **kwargs)` take and return what the callable does."""
        module.graph.set_codegen(CallCodeGen(self))
        module.recompile()
        return module


class CallCodeGen(torch.fx.graph.CodeGen):
    """Generated code whose forward takes the callable's arguments and returns its result."""

    def __init__(self, calling: Calling) -> None:
        super().__init__()
        self.calling = calling

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        text = super().gen_fn_def(["*args", "**kwargs"], maybe_return_annotation, **options)
        names = "".join(f"{v.split(':')[0].split('#')[0].strip()}, " for v in free_vars)
        return f"{text}\n    {names}= _calling.leaves(args, kwargs)" if names else f"{text}\n    _calling.leaves(args, kwargs)"

    def generate_output(self, output_args: Any, **options: Any) -> str:
        return f"return _calling.result({output_args!r})"

    def additional_globals(self) -> list[tuple[str, Any]]:
        return [("_calling", self.calling)]

    def process_inputs(self, *args: Any) -> Any:
        return self.calling.leaves(args, {})

    def process_outputs(self, outputs: Any) -> Any:
        return self.calling.result(outputs)


class GraphWriter:
    """Copies the nodes of a trace into a graph whose inputs are the leaves of the call."""

    def __init__(self, recorder: Any, call: Any, outputs: list[Any]) -> None:
        self.recorder = recorder
        self.call = call
        self.outputs = outputs
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.env: dict[torch.fx.Node, Any] = {}
        self.writes: list[tuple[str, Any]] = []
        self.attr_names: dict[int, str] = {}
        self.attr_nodes: dict[str, torch.fx.Node] = {}
        self.placeholders = [self.graph.placeholder(name) for name in call.names]
        self._take_state()
        for name, value in recorder.attributes.items():
            setattr(self.root, name, value)

    # -- state --------------------------------------------------------------------------------------
    def _take_state(self) -> None:
        """Parameters and buffers of the exported module under their own names."""
        module = self.call.module
        if module is None:
            return
        for prefix, child in module.named_modules(remove_duplicate=False):
            for name, value in child._parameters.items():
                self._owner(prefix).register_parameter(name, value)
                self.attr_names.setdefault(id(value), f"{prefix}.{name}" if prefix else name)
            for name, buffer in child._buffers.items():
                self._owner(prefix).register_buffer(name, buffer, persistent=name not in child._non_persistent_buffers_set)
                self.attr_names.setdefault(id(buffer), f"{prefix}.{name}" if prefix else name)

    def _owner(self, path: str) -> torch.nn.Module:
        owner = self.root
        for part in path.split(".") if path else ():
            if part not in owner._modules:
                owner.add_module(part, torch.nn.Module())
            owner = owner._modules[part]  # type: ignore[assignment]
        return owner

    def _attribute(self, value: torch.Tensor, source: Source | None = None) -> torch.fx.Node:
        """A get_attr node for a tensor that is no argument."""
        name = self.attr_names.get(id(value))
        if name is None:
            name = self._free_name("".join(c if c.isalnum() else "_" for c in (source.name if source else "constant")).strip("_") or "constant")
            self.attr_names[id(value)] = name
            setattr(self.root, name, value)
        if name not in self.attr_nodes:
            self.attr_nodes[name] = self.graph.get_attr(name)
        return self.attr_nodes[name]

    def _free_name(self, base: str) -> str:
        name, i = base, 0
        while hasattr(self.root, name) or name[0].isdigit():
            name, i = f"c_{base}_{i}", i + 1
        return name

    # -- inputs -------------------------------------------------------------------------------------
    def _input(self, entry: Any) -> Any:
        index = self.call.sources.get(entry.source)
        if index is not None:
            return self.placeholders[index]
        if isinstance(entry.real, torch.Tensor):
            for i, leaf in enumerate(self.call.leaves):
                if leaf is entry.real:
                    return self.placeholders[i]
        derived = self._derived(entry.source)
        if derived is not None:
            return derived
        if isinstance(entry.real, torch.Tensor):
            return self._attribute(entry.real, entry.source)
        if isinstance(entry.real, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return entry.real.node.hint
        return entry.real

    def _derived(self, source: Source) -> torch.fx.Node | None:
        """What is read off a tensor among the arguments: a size, an array's tensor, a gradient."""
        base = source.parent
        if base is None:
            return None
        if base in self.call.sources:
            node = self.placeholders[self.call.sources[base]]
        else:
            known = self.recorder.input_by_source.get(base)
            if known is None or known.node not in self.env and not isinstance(known.real, torch.Tensor):
                return None
            node = self.env.get(known.node) or self._input(known)
        if isinstance(source, TensorPropertySource):
            return self.graph.call_method(source.prop, (node,) if source.prop == "storage_offset" else (node, source.index))
        if isinstance(source, NumpyTensorSource):
            return self.graph.call_function(torch.as_tensor, (node,))
        if isinstance(source, AttrSource):
            return self.graph.call_function(getattr, (node, source.member))
        return None

    # -- nodes --------------------------------------------------------------------------------------
    def write_buffer(self, name: str, value: Any) -> None:
        self.writes.append((name, value))

    def finish(self, flat: list[Any], refuse: Callable[[Any], Exception], guards: list[Any]) -> torch.fx.GraphModule:
        """Copy the nodes, write the buffers, return the leaves `flat` of the result."""
        for entry in self.recorder.inputs:
            self.env[entry.node] = self._input(entry)
        self._check_shapes(guards)
        for node in self.recorder.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copied = self.graph.node_copy(node, self.env.__getitem__)
            copied.meta = {}
            copied.stack_trace = stack_text(node)
            self.env[node] = copied
        results = tuple(self._before_writes(leaf, refuse) for leaf in flat)
        values = [self._before_writes(value, refuse) for _, value in self.writes]
        for (name, _), new in zip(self.writes, values, strict=True):
            target = self.attr_nodes.get(name) or self.graph.get_attr(name)
            self.graph.call_method("copy_", (target, new)).stack_trace = f"  the buffer {name}, assigned in forward"
        self.graph.output(results)
        self._trace_attributes()
        made = torch.fx.GraphModule(self.root, self.graph, "Exported")
        for table in ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules"):
            made.__dict__[table] = self.root.__dict__[table]      # all of the state, in its own order
        for name in self.root.__dict__.keys() - torch.nn.Module().__dict__.keys():
            made.__dict__[name] = self.root.__dict__[name]        # constants are no buffers
        return made

    def _result(self, leaf: Any, refuse: Callable[[Any], Exception]) -> Any:
        if isinstance(leaf, Slot):
            made = self.outputs[leaf.index]
            return self.env[made] if isinstance(made, torch.fx.Node) else made
        if isinstance(leaf, Leaf) and leaf.index >= 0:
            return self.placeholders[leaf.index]
        if isinstance(leaf, torch.Tensor):
            for entry in self.recorder.inputs:
                if entry.real is leaf:
                    return self.env[entry.node]
            return self._attribute(leaf)
        if type(leaf) is torch.Size:
            return tuple(self._result(marker(n), refuse) for n in leaf)     # Calling.result makes it a Size again
        if type(leaf) is slice:
            return slice(*(self._result(part, refuse) for part in (leaf.start, leaf.stop, leaf.step)))
        if type(leaf) in CONSTANTS:
            return leaf
        for i, given in enumerate(self.call.leaves):
            if given is leaf:
                return self.placeholders[i]
        raise refuse(leaf)

    def _before_writes(self, leaf: Any, refuse: Callable[[Any], Exception]) -> Any:
        """A result that shares memory with a buffer written at the end is copied before that."""
        made = self._result(leaf, refuse)
        written = {name for name, _ in self.writes}
        memory = {_memory(i.fake) for i in self.recorder.inputs if self.attr_names.get(id(i.real)) in written}
        source = self.outputs[leaf.index] if isinstance(leaf, Slot) else None
        fake = source.meta.get("example_value") if isinstance(source, torch.fx.Node) else None
        if isinstance(leaf, torch.Tensor):
            fake = next((i.fake for i in self.recorder.inputs if i.real is leaf), None)
            shares = self.attr_names.get(id(leaf)) in written
        else:
            shares = False
        if shares or (isinstance(fake, torch.Tensor) and _memory(fake) in memory):
            return self.graph.call_method("clone", (made,))
        return made

    def _trace_attributes(self) -> None:
        """A read of an attribute or a size belongs to the line that first uses it."""
        for node in reversed(self.graph.nodes):
            if node.op not in ("placeholder", "output") and not node.stack_trace:
                node.stack_trace = next((u.stack_trace for u in node.users if u.stack_trace), "  the arguments and the result")

    def _check_shapes(self, guards: list[Any]) -> None:
        """Conditions on symbolic sizes that the trace relied on stay in the program."""
        for guard in guards:
            if guard.kind != "SHAPE_ENV":
                continue
            text, places = guard.payload
            nodes = []
            for i, (name, source) in enumerate(sorted(places, key=lambda p: -len(p[0]))):
                text = text.replace(name, f"_v{i}")
                index = self.call.sources.get(source)
                nodes.append(self.placeholders[index] if index is not None else self._derived(source))
            if nodes and all(isinstance(n, torch.fx.Node) for n in nodes):
                self.graph.call_function(_shape_check(text, guard.payload[0], len(nodes)), tuple(nodes))


def _memory(tensor: Any) -> int | None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    return tensor.untyped_storage()._cdata


def _shape_check(text: str, shown: str, count: int) -> Any:
    import math

    code = compile(text, "<shape condition>", "eval")

    def check_shape(*values: Any) -> None:
        holds = eval(code, {"math": math, "torch": torch, **{f"_v{i}": v for i, v in enumerate(values)}})
        torch._check(holds, lambda: f"the exported program holds for inputs with {shown}")

    return check_shape


def stack_text(node: torch.fx.Node) -> str:
    """The user's lines that made the node, outermost first, as a traceback prints them."""
    lines = []
    for code, index in node.meta.get("where") or ():
        user = original_code(code)
        lines.append(f'  File "{user.co_filename}", line {decode(code).instructions[index].lineno}, in {user.co_name}')
    return "\n".join(lines)
