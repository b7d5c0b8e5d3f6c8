"""Small passes over the captured graph before the backend sees it."""

from __future__ import annotations

import torch.fx


def eliminate_dead_code(graph: torch.fx.Graph) -> None:
    """Drop operations nobody uses, unless they write, draw random numbers, switch a mode or may raise."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("placeholder", "output", "root") or node.users or node.meta.get("impure"):
            continue
        graph.erase_node(node)


def unused_placeholders(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    return {n for n in graph.nodes if n.op == "placeholder" and not n.users}
