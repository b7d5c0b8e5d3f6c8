"""`set_logs`: switch log tags by keyword, as torch._logging.set_logs does."""

from __future__ import annotations

from typing import Any

from ..core import logs


def set_logs(**tags: Any) -> None:
    """set_logs(graph_breaks=True, dynamo="info", all=logging.DEBUG); tags not named are off. ValueError names unknown ones."""
    logs.configure(tags)
