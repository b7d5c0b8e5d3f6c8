"""`report(fn, *args)`: run a function compiled and say what the compiler did.

In: a callable and its arguments. Out: a `CompileReport`. A public name of `dynamo_nb`.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from typing import Any

from dynamo_nb.api.compile import compile, original_of
from dynamo_nb.core import events
from dynamo_nb.reports.collect import Collector
from dynamo_nb.reports.model import CompileReport, FunctionSketch


def report(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CompileReport:
    """Call `fn(*args, **kwargs)` compiled and return what was compiled, broken or compiled again.

    fn: a function, method or nn.Module, compiled already or not; it stays as it is.
    Raises whatever the call raises. Code compiled before this call isn't listed: call
    `dynamo_nb.reset()` first to see everything from the start.
    """
    collector = Collector()
    with events.listening(collector):
        target = fn if is_compiled(fn) else compile(fn)
        target(*args, **kwargs)
    sketch = sketch_of(fn)
    if not collector.records:
        collector.note("Nothing was compiled during this call: earlier compiled code answered it. "
                       "Call dynamo_nb.reset() first to see a compile from the start.")
    return collector.report(name_of(fn), [sketch] if sketch and not collector.records else [])


def is_compiled(fn: object) -> bool:
    """Whether fn came out of `dynamo_nb.compile`."""
    return type(getattr(fn, "__func__", fn)).__name__ == "CompiledFunction"


def name_of(fn: object) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__).replace("<locals>.", "")


def sketch_of(fn: object) -> FunctionSketch | None:
    """The function's place and source as text; None where it isn't a Python function."""
    code = getattr(inspect.unwrap(original_of(fn)), "__code__", None)
    if code is None:
        return None
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    source = "".join(inspect.getblock(lines)) if lines else ""
    return FunctionSketch(name_of(fn), code.co_filename, code.co_firstlineno, source)
