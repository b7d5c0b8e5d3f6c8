"""What became of every operation of an ATen graph: fused into which kernels, a view, or a call of ATen and why.

In: the graph, how it was lowered, its schedule and kernels. Out: `NodeFate`s in order. An operation that was not given
memory is computed inside whatever uses it, so its kernels are those of its users.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from ...core.generated import NodeFate
from .graph import AtenCall, GraphLowering, is_view
from .ir import Buffer, Kernel
from .provenance import Provenance
from .schedule import Group, Schedule
from .tensors import LazyTensor


def fates(gm: torch.fx.GraphModule, lowering: GraphLowering, schedule: Schedule, kernels: dict[int, Kernel], origin: Provenance) -> tuple[NodeFate, ...]:
    """kernels: by step of the schedule."""
    calls = {name: step.why for step in schedule.steps if isinstance(step, AtenCall) for name in step.origins}
    own = _kernels_of(schedule, kernels)
    served = _served(gm, lowering, own, calls)
    out = []
    for node in gm.graph.nodes:
        if node.op == "call_function":
            names = tuple(sorted(served[node], key=lambda k: int(k[1:])))
            name, place = origin.of(node)
            kind = _kind(node, names, own, calls)
            why = str(node.args[0]) if kind == "part" else calls.get(node.name, "")
            out.append(NodeFate(node.name, _target(node), kind, names, why, name, place))
    return tuple(out)


def _kernels_of(schedule: Schedule, kernels: dict[int, Kernel]) -> dict[str, set[str]]:
    """Node -> the kernels with a statement for it."""
    found: dict[str, set[str]] = {}
    for i, step in enumerate(schedule.steps):
        if isinstance(step, Group) and kernels[i].phases:
            for member in step.members():
                for name in member.definition.origins:
                    found.setdefault(name, set()).add(kernels[i].name)
    return found


def _served(gm: torch.fx.GraphModule, lowering: GraphLowering, own: dict[str, set[str]], calls: dict[str, str]) -> dict[torch.fx.Node, set[str]]:
    """Node -> all kernels that compute it or a part of it."""
    served: dict[torch.fx.Node, set[str]] = {}
    for node in reversed(gm.graph.nodes):
        found = set(own.get(node.name, ())) if node.name not in calls else set()
        if node.name not in calls and not _in_memory(lowering.env.get(node)):
            found |= {k for user in node.users if user.name not in calls for k in served[user]}
        served[node] = found
    return served


def _in_memory(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_in_memory, value))
    return value.buffer is not None if isinstance(value, LazyTensor) else isinstance(value, Buffer)


def _kind(node: torch.fx.Node, kernels: tuple[str, ...], own: dict[str, set[str]], calls: dict[str, str]) -> str:
    if node.name in calls:
        return "aten"
    if node.name in own:        # views too, where somebody needs them laid out in memory
        return "kernel"
    if isinstance(node.meta.get("val"), (int, torch.SymInt)):
        return "number"
    if node.target is operator.getitem:
        return "part"
    if is_view(node) and not _writes(node):
        return "view"
    return "kernel" if kernels else "view" if node.users else "unused"


def _writes(node: torch.fx.Node) -> bool:
    arguments = node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else []
    return any(a.alias_info is not None and a.alias_info.is_write for a in arguments)


def _target(node: torch.fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target)
