"""Generator, coroutine and async functions under compile(): a function of the same kind whose callees are compiled."""

from __future__ import annotations

import functools
import inspect
from typing import Any


class Stepper:
    """Runs each step of a suspended frame inside the region; an awaitable and an iterator."""

    def __init__(self, inner: Any, region: Any) -> None:
        self.inner = inner
        self.region = region

    def _step(self, fn: Any, *args: Any) -> Any:
        self.region.enter()
        try:
            return fn(*args)
        finally:
            self.region.exit()

    def __iter__(self) -> Stepper:
        return self

    __await__ = __iter__

    def __next__(self) -> Any:
        return self._step(self.inner.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self.inner.send, value)

    def throw(self, *exc: Any) -> Any:
        return self._step(self.inner.throw, *exc)

    def close(self) -> Any:
        return self._step(self.inner.close)


def drive(fn: Any, region: Any) -> Any:
    """fn with every step run inside the region."""
    if inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            source = fn(*args, **kwargs)
            try:
                while True:
                    try:
                        value = await Stepper(source.__anext__(), region)
                    except StopAsyncIteration:
                        return
                    yield value
            finally:
                await source.aclose()

        made: Any = async_generator
    elif inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await Stepper(fn(*args, **kwargs), region)

        made = coroutine
    else:

        @functools.wraps(fn)
        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from Stepper(fn(*args, **kwargs), region))

        made = generator
    made._torchdynamo_orig_callable = fn
    made.region = region
    return made
