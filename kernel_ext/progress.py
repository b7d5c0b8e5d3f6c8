"""Says what is going on while a compile takes long.

In: the events of running compiles. Out: one line under the cell, from `DELAY` seconds on, with the
frame, the last finished stage and the seconds so far; emptied when the compile ends. Used by `session`.
"""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from html import escape
from typing import Any

from IPython.display import publish_display_data

DELAY = 2.0
PERIOD = 0.5


class Progress:
    """One at a time, for the outermost running compile; silent where `rich` is false."""

    def __init__(self, rich: bool) -> None:
        self._rich = rich
        self._lock = threading.Lock()
        self._open = 0
        self._done: threading.Event | None = None
        self._label = ""

    def take(self, kind: str, record: Any) -> None:
        """Follow the events of one compile; unknown ones are ignored."""
        if not self._rich:
            return
        with self._lock:
            if kind == "compile_start":
                self._open += 1
                self._label = str(getattr(record, "function", "") or "")
                if self._open == 1:
                    self._start()
            elif kind == "stage" and self._open:
                stages = getattr(record, "stages", None)
                if stages:
                    self._label = f"{record.function}, after {list(stages)[-1]}"
            elif kind == "compile_end" and self._open:
                self._open -= 1
                if self._open == 0:
                    self._stop()

    def reset(self) -> None:
        """A cell has ended: whatever is still counted as running isn't."""
        with self._lock:
            self._open = 0
            self._stop()

    def _start(self) -> None:
        self._done = threading.Event()
        context = contextvars.copy_context()    # carries which cell the output belongs to
        threading.Thread(target=context.run, args=(self._watch, self._done), name="dynamo_nb progress", daemon=True).start()

    def _stop(self) -> None:
        if self._done is not None:
            self._done.set()
            self._done = None

    def _watch(self, done: threading.Event) -> None:
        began = time.perf_counter()
        name, shown = f"dnb-progress-{uuid.uuid4().hex[:12]}", False
        wait = DELAY
        while not done.wait(wait):
            text = f"compiling {self._label} … {time.perf_counter() - began:.0f} s"
            _publish(name, text, update=shown)
            shown, wait = True, PERIOD
        if shown:
            _publish(name, "", update=True)


def _publish(name: str, text: str, update: bool) -> None:
    html = f'<small class="dnb-progress" role="status">{escape(text)}</small>' if text else ""
    publish_display_data({"text/html": html, "text/plain": text}, transient={"display_id": name}, update=update)
