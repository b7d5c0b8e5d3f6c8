"""The decorators of torch._dynamo.decorators, by the same names."""

from .api.marks import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    skip,
)

__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "forbid_in_graph", "graph_break", "mark_dynamic",
    "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "skip",
]
