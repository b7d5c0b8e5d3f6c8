"""The Jupyter side of dynamo_nb: the `%%compile` cell magic and its report card.

`%load_ext dynamo_nb` and `%load_ext kernel_ext` both end here. Loading twice is harmless; unloading
removes the transformers, the magic, the callbacks and the completion, and closes the widgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Set up `%%compile` in this shell."""
    from kernel_ext import session

    session.load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Undo everything; functions already compiled stay compiled."""
    from kernel_ext import session

    session.unload(ipython)
