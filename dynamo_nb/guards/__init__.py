"""Guards: every assumption made while tracing becomes a check that runs before the compiled code.

In: `core.source.Assumption`s from the tracer. Out: a GuardManagerWrapper (native tree, readable
Python, failure reasons, records). Called by symbolic (TensorMeta, resolve), convert and reports.
"""

from __future__ import annotations

from .accessors import Missing, Scope, resolve
from .builder import Guard, GuardBuilder, GuardBuildError
from .content import code_key
from .kinds import find_kind, guard_kind, registry
from .manager import GuardManagerWrapper, build
from .strict import GuardFormsDisagree
from .tensors import TensorMeta

__all__ = [
    "Guard",
    "GuardBuildError",
    "GuardBuilder",
    "GuardFormsDisagree",
    "GuardManagerWrapper",
    "Missing",
    "Scope",
    "TensorMeta",
    "build",
    "code_key",
    "find_kind",
    "guard_kind",
    "registry",
    "resolve",
]
