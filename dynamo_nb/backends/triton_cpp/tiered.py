"""`options={"tiered": True}`: ATen runs a graph while the C++ compiler works in a thread; then the kernels take over.

Until then results are ATen's, after it the kernels': they may differ in the last bits. A build that fails leaves ATen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

Run = Callable[[list[Any]], Any]
_slots = threading.BoundedSemaphore(int(os.environ.get("DYNAMO_NB_COMPILE_THREADS") or os.cpu_count() or 1))


class Tiered:
    """A boxed callable. built: by the thread; changed: called once by the first call that finds the kernels."""

    _boxed_call = True

    def __init__(self, aten: Run, build: Callable[[], Run | None]) -> None:
        self.aten, self.build = aten, build
        self.built: Run | None = None
        self.changed: Callable[[], None] | None = None
        self.thread = threading.Thread(target=self._work, name="dynamo_nb C++ compiler", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        with _slots:
            self.built = self.build()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the build to end; are the kernels there?"""
        self.thread.join(seconds)
        return self.built is not None

    def __call__(self, args: list[Any]) -> Any:
        if self.built is None:
            return self.aten(args)
        if self.changed is not None:
            changed, self.changed = self.changed, None
            changed()
        return self.built(args)
