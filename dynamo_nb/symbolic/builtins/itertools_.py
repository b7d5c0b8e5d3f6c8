"""itertools, as polyfills: small Python functions that are traced."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from .. import polyfills
from ..variables.base import VariableTracker
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _polyfilled(fn: Any, replacement: Any) -> None:
    def handler(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        result = tx.call_polyfill(replacement, list(args), kwargs)
        result.stands_for = fn  # type: ignore[attr-defined]
        result.step = tx.recorder.step
        return result

    handles(fn)(handler)


for _name, _replacement in polyfills.itertools_.TABLE.items():
    _polyfilled(getattr(itertools, _name), _replacement)


@handles(itertools.chain.from_iterable)
def chain_from_iterable(tx: Tx, iterables: VariableTracker) -> VariableTracker:
    result = tx.call_polyfill(polyfills.itertools_.chain_from_iterable, [iterables], {})
    result.step = tx.recorder.step
    return result
