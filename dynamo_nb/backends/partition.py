"""Which values of a joint graph are saved for its backward, and which the backward computes again."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx


def min_cut_partition(joint: torch.fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
    """torch's min-cut partition, which never has a backward work anything out of an input that the call has changed meanwhile.

    torch's own may save such an input, which costs nothing, and compute again from it what depends on what it was.
    """
    from torch._functorch.partitioners import CheckpointPolicy, min_cut_rematerialization_partition

    for node in _reads_of_changed(joint.graph):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, joint_inputs, **kwargs)


def _reads_of_changed(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """What is computed from the memory of inputs that change: in the graph, or, where they have gradients, after it (it clones them first)."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    changed_after = meta is None or any(info.mutates_data for info in meta.input_info)
    for node in graph.find_nodes(op="placeholder"):
        memory, inside = [node], any(map(_writes_first, node.users))
        for part in memory if inside else ():
            for user in part.users:
                if user.target is operator.getitem or getattr(user.target, "is_view", False):
                    memory.append(user)
                elif user.op == "call_function" and not _writes_first(user):
                    yield user
        if changed_after and not inside:
            yield from (user for user in node.users if user.target is torch.ops.aten.clone.default)


def _writes_first(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
