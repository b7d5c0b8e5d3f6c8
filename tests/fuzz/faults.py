"""The seeded faults: deliberate mistakes in dynamo_nb that the fuzzer must find (run by `fault_harness`).

Each is a generator function that breaks the compiler while it is suspended; its docstring says what is wrong. Guard
faults forget one kind of guard; effect faults lose, repeat or reorder what is replayed after a graph; the rest are
wrong values, names and places. dynamo_nb is imported when a fault is applied, in the forked child only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .fault_harness import FAULTS, fault, patched, run_faults


@contextlib.contextmanager
def without_guards(*kinds: str) -> Iterator[None]:
    """The guard builder forgets every assumption of these kinds."""
    from dynamo_nb.guards.builder import GuardBuilder

    add_all = GuardBuilder.add_all

    def forgetful(self: Any, assumptions: Any) -> None:
        add_all(self, [a for a in assumptions if a.kind not in kinds])

    with patched(GuardBuilder, "add_all", forgetful):
        yield


@fault("guard_equals_off")
def guard_equals_off() -> Iterator[None]:
    """Values of ints, floats and strings are not guarded."""
    with without_guards("EQUALS_MATCH"):
        yield


@fault("guard_tensor_off")
def guard_tensor_off() -> Iterator[None]:
    """dtype, shape and requires_grad of tensors are not guarded."""
    with without_guards("TENSOR_MATCH"):
        yield


@fault("guard_constant_off", needs=r"is (not )?None|flag")
def guard_constant_off() -> Iterator[None]:
    """None, True and False are not guarded."""
    with without_guards("CONSTANT_MATCH", "BOOL_MATCH", "NONE_MATCH"):
        yield


@fault("guard_length_off", needs=r"lst|ts\b|G1")
def guard_length_off() -> Iterator[None]:
    """Lengths of lists and tuples are not guarded."""
    with without_guards("SEQUENCE_LENGTH"):
        yield


@fault("guard_dict_keys_off", needs=r"\bd\b|\bdt\b|G2")
def guard_dict_keys_off() -> Iterator[None]:
    """Keys of dicts and their order are not guarded."""
    with without_guards("DICT_KEYS"):
        yield


@fault("guard_shape_env_off", needs=r"shape|size\(|len\(")
def guard_shape_env_off() -> Iterator[None]:
    """Conditions on symbolic sizes are not guarded."""
    with without_guards("SHAPE_ENV"):
        yield


@fault("guard_aliasing_off", needs=r"= x$|= x\[:\]|= lst$")
def guard_aliasing_off() -> Iterator[None]:
    """Whether two inputs are the same object is not guarded."""
    with without_guards("OBJECT_ALIASING", "NO_TENSOR_ALIASING", "NO_ALIASING", "STORAGE_OVERLAP", "NO_STORAGE_OVERLAP"):
        yield


__all__ = ["FAULTS", "run_faults"]
