"""Which node of the captured graph, and which line of the user's, a node of an ATen graph comes from.

In: the captured graph, whose nodes carry `meta["location"]` (our tracer) or torch's `meta["stack_trace"]`. Out: names and
`Location`s. AOTAutograd leaves the captured node's name in `from_node`; nodes of a backward graph have only the sequence
number of the forward operation whose gradient they compute. Holds text only, since it lives as long as the compiled graph.
"""

from __future__ import annotations

import re

import torch.fx

from ...core.records import Location

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>[^\n]*)\n(?P<text>[^\n]*)')


class Provenance:
    def __init__(self, captured: torch.fx.GraphModule | None = None) -> None:
        nodes = captured.graph.nodes if captured is not None else ()
        self.places: dict[str, Location | None] = {node.name: location(node) for node in nodes}
        self.forward: dict[int, str] = {}       # sequence number -> captured node, of the forward nodes met so far

    def of(self, node: torch.fx.Node) -> tuple[str, Location | None]:
        """(captured node, line); '' and None where unknown. Forward graphs are asked about before their backward graphs."""
        number = node.meta.get("seq_nr")
        came_from = node.meta.get("from_node")
        name = came_from[-1].name if came_from else ""
        if name not in self.places:
            name = self.forward.get(number, "") if isinstance(number, int) else ""
        elif isinstance(number, int):
            self.forward.setdefault(number, name)
        place = self.places.get(name)
        return name, place if place is not None else location(node)


def location(node: torch.fx.Node) -> Location | None:
    """From the node's own meta."""
    place = node.meta.get("location")
    if isinstance(place, Location):
        return place
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return None
    last = frames[-1]
    return Location(last["file"], int(last["line"]), last["function"].strip(), last["text"].strip())
