"""Every code object of the standard library comes back byte for byte, with the stack size CPython computed."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import marshal
import os
import pathlib
import sysconfig
import types
import warnings

import pytest

from dynamo_nb.cpython import analysis
from dynamo_nb.cpython.assemble import assemble, decode, encode

_FIELDS = [name for name in dir(compile("", "", "exec"))
           if name.startswith("co_") and name not in ("co_lnotab", "co_lines", "co_positions", "co_stacksize")]


def _walk(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _walk(constant)


def _check(code):
    decoded = decode(code, fresh=True)
    again = assemble(decoded.instructions, decoded.exceptions, template=code)
    differing = [name for name in _FIELDS if getattr(code, name) != getattr(again, name)]
    if again.co_stacksize != code.co_stacksize:
        depths = analysis.stack_depths(decoded.instructions, decoded.exceptions)
        if again.co_stacksize > code.co_stacksize or -1 not in depths:  # CPython counts dead code too
            differing.append(f"co_stacksize {again.co_stacksize} for {code.co_stacksize}")
    return differing


def _module_code(path):
    """From the compiled file where there is a current one, which saves compiling the whole library."""
    cached = pathlib.Path(importlib.util.cache_from_source(path))
    if cached.exists() and (data := cached.read_bytes())[:4] == importlib.util.MAGIC_NUMBER:
        return marshal.loads(data[16:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(pathlib.Path(path).read_bytes(), path, "exec", dont_inherit=True)


def _check_files(paths):
    count, failures = 0, []
    for path in paths:
        try:
            module = _module_code(path)
        except (SyntaxError, ValueError):
            continue  # the library's own tests hold deliberately broken files
        for code in _walk(module):
            count += 1
            differing = _check(code)
            if differing:
                failures.append((path, code.co_qualname, code.co_firstlineno, differing))
    return count, failures


def test_standard_library():
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    paths = [str(path) for path in sorted(root.rglob("*.py")) if "site-packages" not in path.relative_to(root).parts]
    workers = min(4, os.cpu_count() or 1)
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        results = list(pool.map(_check_files, [paths[i::workers] for i in range(workers)]))
    assert [failure for _, failures in results for failure in failures] == []
    assert sum(count for count, _ in results) > 20_000


def test_extended_args_and_long_jumps():
    body = "\n".join(f"    x{i} = g{i}(x{i}, {i}.5)" for i in range(400))
    source = f"def f(n):\n  while n:\n    try:\n{body.replace('    x', '      x')}\n    finally:\n      n -= 1\n"
    function = compile(source, "<long>", "exec").co_consts[0]
    assert max(i.arg or 0 for i in decode(function).instructions) > 255
    assert _check(function) == []


@pytest.mark.parametrize("change", ["far", "near"])
def test_jumps_grow_and_shrink(change):
    from dynamo_nb.cpython.instruction import create

    namespace = {}
    exec("def f(n):\n  t = 0\n  while n:\n    n -= 1\n    t += n\n  return t", namespace)
    function = namespace["f"]
    decoded = decode(function.__code__, fresh=True)
    if change == "far":
        add = next(k for k, i in enumerate(decoded.instructions) if i.opname == "STORE_FAST" and i.argval == "t" and k > 5)
        decoded.instructions[add + 1:add + 1] = [create("NOP") for _ in range(70_000)]
    function.__code__ = assemble(decoded.instructions, decoded.exceptions, template=function.__code__)
    assert function(5) == 10
    jumps = [i for i in decode(function.__code__).instructions if i.target is not None]
    assert (max(i.arg for i in jumps) > 65_535) == (change == "far")


def test_encode_alone_equals_code():
    code = _check_files.__code__
    decoded = decode(code)
    assert encode(decoded.instructions, decoded.exceptions, code.co_firstlineno) == (
        code.co_code, code.co_linetable, code.co_exceptiontable)


def test_executed_code_is_decoded_without_specialisation():
    def hot(n):
        total = 0
        for i in range(n):
            total = total + i
        return total

    before = decode(hot.__code__, fresh=True)
    for _ in range(50):
        hot(20)
    after = decode(hot.__code__, fresh=True)
    assert [(i.opname, i.arg) for i in before.instructions] == [(i.opname, i.arg) for i in after.instructions]
