"""Runs seeded faults: deliberate mistakes in the compiler (listed in `faults`), each of which the fuzzer must find.

In: names of faults (none: all), a subject. Out: for each the seed that showed it. A fault is a name, a context manager that
breaks the compiler while it is open (entered in the forked child only), and a regular expression that a program must
match to be able to show it. A fault counts as found only on a program that is right without it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .batch import run_many, run_one
from .gen import generate
from .subjects import Subject


@dataclass
class Fault:
    """One seeded fault."""

    name: str
    needs: str
    apply: Callable[[], contextlib.AbstractContextManager[Any]]
    about: str


FAULTS: dict[str, Fault] = {}


def fault(name: str, needs: str = "") -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register a generator function as a fault; its docstring says what is wrong."""

    def register(write: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        FAULTS[name] = Fault(name, needs, contextlib.contextmanager(write), (write.__doc__ or "").strip())
        return write

    return register


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[Any]:
    """Replace an attribute (or a mapping's item) while open; yields the original."""
    if isinstance(owner, dict):
        old = owner[name]
        owner[name] = value
    else:
        old = getattr(owner, name)
        setattr(owner, name, value)
    try:
        yield old
    finally:
        if isinstance(owner, dict):
            owner[name] = old
        else:
            setattr(owner, name, old)


def candidates(needs: str, seed: int, count: int) -> Iterator[int]:
    """The first `count` seeds from `seed` on whose program matches the pattern."""
    pattern = re.compile(needs)
    found = 0
    for value in range(seed, seed + 50 * count):
        if found >= count:
            return
        source = generate(value).source
        if pattern.search(source[source.rindex("CALL = [0]") :]):
            found += 1
            yield value


def find(one: Fault, subject: Subject, seed: int, limit: int, jobs: int) -> tuple[int | None, int, str]:
    """Seed of a program that shows the fault (None if there is none), programs run, and the difference."""
    count = 0
    for outcome in run_many(candidates(one.needs, seed, limit), subject, jobs, batch=10, context=one.apply):
        count += 1
        if outcome.status == "harness error":
            return None, count, outcome.note
        if outcome.status in ("differs", "crashed", "hung") and run_one(generate(outcome.seed, outcome.attempt), subject).status == "same":
            return outcome.seed, count, str(outcome.diffs[0]) if outcome.diffs else outcome.status
    return None, count, ""


def run_faults(names: list[str], subject: Subject, seed: int, limit: int, jobs: int) -> int:
    """Run the named faults (all if none is named), print a line for each; 1 if one was not found."""
    unknown = [n for n in names if n not in FAULTS]
    if unknown:
        raise SystemExit(f"unknown faults {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    missed = 0
    for one in FAULTS.values():
        if names and one.name not in names:
            continue
        start = time.monotonic()
        where, count, what = find(one, subject, seed, limit, jobs)
        missed += where is None
        verdict = f"found by seed {where} after {count}" if where is not None else f"NOT FOUND in {count}"
        print(f"{one.name:28s} {verdict} programs, {time.monotonic() - start:.1f} s  {what[:220]}", flush=True)
    print(f"{len(names or FAULTS) - missed} of {len(names or FAULTS)} seeded faults found")
    return 1 if missed else 0
