"""`CompilerState`: counters, compile ids and timings of the process; everything `reset()` clears."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterator


class CompilerState:
    def __init__(self) -> None:
        self.counters: collections.defaultdict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.frame_count = 0
        self.graph_count = 0
        self.times: dict[str, list[float]] = {}
        self.warned: set[str] = set()
        self.breaks = 0
        self.run_only = 0

    def next_frame(self) -> int:
        self.frame_count += 1
        return self.frame_count - 1

    def next_graph(self) -> int:
        self.graph_count += 1
        return self.graph_count

    def reset(self) -> None:
        self.frame_count = 0
        self.graph_count = 0
        self.times.clear()
        self.warned.clear()
        self.breaks = 0

    @contextlib.contextmanager
    def timed(self, stage: str, into: dict[str, float] | None = None) -> Iterator[None]:
        """Add the seconds a stage takes to the process's table and to one record's."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.times.setdefault(stage, []).append(spent)
            if into is not None:
                into[stage] = into.get(stage, 0.0) + spent


state = CompilerState()
