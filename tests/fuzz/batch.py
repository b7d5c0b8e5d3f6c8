"""Runs many programs in forked child processes, so that a crash or a hang is one finding and not the end.

In: seeds or programs, a loaded subject. Out: outcomes as they come. Each child takes a batch; if it dies, the program it was
running is reported as crashed and a new child takes the rest. Called by the CLI, the shrinker, the fault harness and tests.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import itertools
import os
import pickle
import select
import signal
import struct
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .program import Program
from .runner import Outcome, run_program
from .subjects import Subject

Item = int | Program
Context = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass
class Child:
    """A forked process at work on a batch."""

    pid: int
    fd: int
    log: Any
    left: deque[Item]
    since: float = field(default_factory=time.monotonic)
    buffer: bytearray = field(default_factory=bytearray)


def seed_of(item: Item) -> int:
    """The seed of a work item."""
    return item.seed if isinstance(item, Program) else item


def _work(items: list[Item], subject: Subject, context: Context, fd: int) -> None:
    with context():
        for item in items:
            try:
                outcome = run_program(item, subject)
            except Exception:
                outcome = Outcome(seed_of(item), "harness error", note=traceback.format_exc(limit=-6))
            data = pickle.dumps(outcome)
            os.write(fd, struct.pack("<I", len(data)) + data)
    gc.collect()


def start(items: list[Item], subject: Subject, context: Context) -> Child:
    """Fork a child for a batch."""
    read, write = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the child
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            os.dup2(log.fileno(), 2)
            os.dup2(log.fileno(), 1)
            faulthandler.enable(file=2)
            _work(items, subject, context, write)
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(write)
    return Child(pid, read, log, deque(items))


def _take(child: Child) -> list[Outcome]:
    """Complete outcomes in the child's buffer."""
    done = []
    while len(child.buffer) >= 4:
        size = struct.unpack("<I", child.buffer[:4])[0]
        if len(child.buffer) < 4 + size:
            break
        done.append(pickle.loads(bytes(child.buffer[4 : 4 + size])))
        del child.buffer[: 4 + size]
        child.left.popleft()
        child.since = time.monotonic()
    return done


def _bury(child: Child, hung: bool) -> list[Outcome]:
    """Reap a child; its current program is a finding if it did not end well."""
    if hung:
        os.kill(child.pid, signal.SIGKILL)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.fd)
    code = os.waitstatus_to_exitcode(status)
    child.log.seek(0)
    tail = child.log.read()[-3000:].decode(errors="replace")
    child.log.close()
    if code == 0 or not child.left:
        return [] if code == 0 else [Outcome(-1, "crashed", note=f"after the last program of a batch, exit {code}\n{tail}")]
    return [Outcome(seed_of(child.left.popleft()), "hung" if hung else "crashed", note=f"exit {code}\n{tail}")]


def run_many(items: Iterable[Item], subject: Subject, jobs: int = 1, batch: int = 25, timeout: float = 60.0,
             context: Context = contextlib.nullcontext) -> Iterator[Outcome]:  # fmt: skip
    """Outcomes of all items, in the order they are done. `timeout` is seconds for one program."""
    source = iter(items)
    waiting: deque[list[Item]] = deque()
    children: list[Child] = []
    exhausted = False
    try:
        while True:
            while len(children) < jobs and (waiting or not exhausted):
                chunk = waiting.popleft() if waiting else list(itertools.islice(source, batch))
                if not chunk:
                    exhausted = True
                    break
                children.append(start(chunk, subject, context))
            if not children:
                return
            ready, _, _ = select.select([c.fd for c in children], [], [], 1.0)
            for child in list(children):
                data = os.read(child.fd, 1 << 20) if child.fd in ready else None
                if data:
                    child.buffer += data
                    yield from _take(child)
                hung = time.monotonic() - child.since > timeout
                if data == b"" or hung:
                    children.remove(child)
                    yield from _bury(child, hung)
                    if child.left:
                        waiting.append(list(child.left))
    finally:
        for child in children:
            _bury(child, hung=True)


def run_one(item: Item, subject: Subject, timeout: float = 60.0, context: Context = contextlib.nullcontext) -> Outcome:
    """One item in its own child."""
    return next(iter(list(run_many([item], subject, batch=1, timeout=timeout, context=context))))
