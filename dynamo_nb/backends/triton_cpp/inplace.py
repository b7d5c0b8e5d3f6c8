"""Updates of an input in its own memory: `y = op(x, …); copy_(x, y)`, as functionalisation leaves them, become `op_(x, …)`.

For operators that change a few elements of a large tensor (`cache[i] = …`), which would otherwise copy all of it twice. Only
where nobody can tell: nothing reads the old x afterwards, no argument shows x's memory, no result of the graph shows it.
Operators that accumulate stay: a graph that fails is run again, and must not have added anything yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from .graph import is_view

aten = torch.ops.aten
IN_PLACE = {
    aten.index_put.default: aten.index_put_.default, aten.scatter.src: aten.scatter_.src, aten.scatter.value: aten.scatter_.value,
    aten.masked_scatter.default: aten.masked_scatter_.default, aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.index_copy.default: aten.index_copy_.default,
}


def update_in_place(gm: torch.fx.GraphModule) -> None:
    """Rewrite the graph's updates of inputs where that is safe."""
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    for copy in [n for n in gm.graph.nodes if n.target is aten.copy_.default]:
        chain = _chain(copy)
        if chain and _safe(copy, chain, order):
            for node in chain:
                node.target = IN_PLACE[node.target]
            copy.replace_all_uses_with(chain[-1])
            gm.graph.erase_node(copy)


def _chain(copy: torch.fx.Node) -> list[torch.fx.Node]:
    """The operators that lead from an input to the copy into it, in order."""
    target, node = copy.args[:2]
    chain: list[torch.fx.Node] = []
    while isinstance(node, torch.fx.Node) and node is not target:
        if node.target not in IN_PLACE or (node.target is aten.index_put.default and (len(node.args) > 3 and node.args[3])):
            return []
        chain.append(node)
        node = node.args[0]
    return chain[::-1] if node is target and isinstance(target, torch.fx.Node) and target.op == "placeholder" else []


def _safe(copy: torch.fx.Node, chain: list[torch.fx.Node], order: dict[torch.fx.Node, int]) -> bool:
    target: Any = copy.args[0]
    states = [target, *chain]
    if not all(_same_layout(target, node) for node in chain):
        return False
    for before, after in itertools.pairwise(states):
        shown = set(_views(before, copy))
        others = [user for node in shown for user in node.users if user not in shown and user is not after and user is not copy]
        if any(order[user] > order[after] for user in others) or any(order[view] > order[after] for view in shown):
            return False
        if any(arg in shown for arg in after.all_input_nodes if arg is not before) or _times(before, after) > 1:
            return False
    return not any(user.op == "output" for node in _views(chain[-1], copy) for user in node.users)


def _views(node: torch.fx.Node, copy: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The node and what shows its memory, but for the copy that is to go."""
    yield node
    for user in node.users:
        if is_view(user) and user is not copy and user.args and user.args[0] is node:
            yield from _views(user, copy)


def _times(node: torch.fx.Node, user: torch.fx.Node) -> int:
    count = 0

    def seen(arg: torch.fx.Node) -> torch.fx.Node:
        nonlocal count
        count += arg is node
        return arg

    torch.fx.node.map_arg((user.args, user.kwargs), seen)
    return count


def _same_layout(target: torch.fx.Node, node: torch.fx.Node) -> bool:
    x, y = target.meta.get("val"), node.meta.get("val")
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)) or x.layout is not torch.strided or y.layout is not torch.strided:
        return False
    pairs = [*zip(x.size(), y.size(), strict=False), *zip(x.stride(), y.stride(), strict=False)]
    return x.dtype is y.dtype and x.ndim == y.ndim and all(_equal(a, b) for a, b in pairs) and all(s != 0 for s in x.stride() if isinstance(s, int))


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(getattr(getattr(a, "node", None), "expr", a) == getattr(getattr(b, "node", None), "expr", b))
