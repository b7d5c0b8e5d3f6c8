"""Deep recursion: the same depth as eager Python, and never a crash. Each case runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HEAD = """
import sys, threading
sys.path[:0] = [{tests!r}, {root!r}]
from native_helpers import Echo
from dynamo_nb import native

def down(n):
    return 0 if n == 0 else 1 + down(n - 1)

def depth():
    try:
        return 1 + depth()
    except RecursionError:
        return 1

echo = Echo(only=lambda code: code.co_filename == "<string>")
"""


def _run(body: str) -> str:
    here = Path(__file__).parent
    program = HEAD.format(tests=str(here), root=str(here.parents[1])) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-1000:]}"
    return done.stdout


def test_hooked_recursion_to_a_hundred_thousand():
    assert (
        _run("""
        sys.setrecursionlimit(200_000)
        with echo:
            print(down(100_000))
    """)
        == "100000\n"
    )


def test_compiled_recursion_to_a_hundred_thousand():
    assert (
        _run("""
        sys.setrecursionlimit(200_000)
        plain, down = down, echo.compile(down)
        print(down(100_000))
    """)
        == "100000\n"
    )


@pytest.mark.parametrize("limit", [300, 60_000])
def test_recursion_error_comes_at_the_same_depth(limit):
    eager, hooked, compiled, again = _run(f"""
        def at(call):
            sys.setrecursionlimit({limit})
            try:
                return call()
            finally:
                sys.setrecursionlimit(1000)

        depth()
        eager = at(lambda: depth())
        def in_region():
            echo.region.enter()
            try:
                return depth()
            finally:
                echo.region.exit()
        hooked = at(in_region)
        depth = echo.compile(depth)
        compiled = at(lambda: depth())
        again = at(lambda: depth())
        print(eager, hooked, compiled, again)
    """).split()
    assert int(hooked) in (int(eager) - 1, int(eager)) and compiled == again == eager


def test_in_a_thread_with_a_small_stack():
    assert (
        _run("""
        sys.setrecursionlimit(100_000)
        threading.stack_size(256 * 1024)
        out = []
        def work():
            with echo:
                out.append(down(30_000))
        t = threading.Thread(target=work)
        t.start(); t.join()
        plain, down = down, echo.compile(down)
        t = threading.Thread(target=lambda: out.append(down(30_000)))
        t.start(); t.join()
        print(out)
    """)
        == "[30000, 30000]\n"
    )


def test_exception_through_many_stack_segments():
    assert (
        _run("""
        sys.setrecursionlimit(200_000)
        def bad(n):
            if n == 0:
                raise ValueError("deep")
            return bad(n - 1)
        try:
            with echo:
                bad(80_000)
        except ValueError as error:
            tb, n = error.__traceback__, 0
            while tb: tb, n = tb.tb_next, n + 1
            print(error, n)
            error.__traceback__ = None
    """)
        == "deep 80002\n"
    )


def test_data_stack_chunk_edges():
    """Frames of many sizes, so that the edges of the data stack's chunks fall everywhere."""
    assert (
        _run("""
        sys.setrecursionlimit(20_000)
        space = {}
        for size in (1, 7, 60, 500, 1900):
            body = "\\n".join(f"    v{i} = n" for i in range(size))
            exec(f"def f{size}(n, fs):\\n{body}\\n    return n if n == 0 else fs[n % 5](n - 1, fs) + v{size - 1} - n + 1", space)
        fs = [space[f"f{size}"] for size in (1, 7, 60, 500, 1900)]
        for start in range(40):
            with echo:
                assert fs[0](400 + start, fs) == 400 + start
        compiled = [echo.compile(f) for f in fs]
        for start in range(40):
            assert compiled[1](400 + start, compiled) == 400 + start
        print("ok")
    """)
        == "ok\n"
    )


def test_chaining_with_torch_compile_both_ways():
    assert (
        _run("""
        import torch
        import torch._dynamo as d
        def small(x): return x + 1
        stock = torch.compile(lambda x: small(x) * 2, backend="eager")
        x = torch.ones(2)
        with echo:
            assert torch.equal(stock(x), x * 4)
            assert torch.equal(small(x), x + 1)
        assert "small" in echo.converted
        ours = echo.compile(lambda x: stock(x) + small(x))
        assert torch.equal(ours(x), x * 6)
        @torch.compile(backend="eager")
        def theirs(x):
            torch._dynamo.graph_break()
            return ours(x) + 1
        for _ in range(3):
            assert torch.equal(theirs(x), x * 7)
        for _ in range(50):
            with echo:
                assert torch.equal(theirs(x), x * 7)
            assert torch.equal(small(x), x + 1)
        handle = d.eval_frame.set_eval_frame(None)
        d.eval_frame.set_eval_frame(handle)
        print("ok")
    """)
        == "ok\n"
    )


def test_hook_left_below_another_one_takes_itself_out():
    assert (
        _run("""
        import torch
        import torch._dynamo as d
        callback = lambda *a: None
        # enter ours, then theirs; leave ours first, then theirs, which puts ours back
        echo.region.enter()
        before = d.eval_frame.set_eval_frame(False)
        echo.region.exit()
        for _ in range(3):
            assert down(5) == 5
            with echo:
                assert down(3) == 3
        d.eval_frame.set_eval_frame(before)
        assert down(5) == 5
        with echo:
            assert down(2) == 2
        sys.setrecursionlimit(100_000)
        assert down(60_000) == 60_000
        print("ok")
    """)
        == "ok\n"
    )
