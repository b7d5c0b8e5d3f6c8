"""What a `%%compile` cell does in a shell: what it compiles, what it leaves alone, and how it fails."""

from __future__ import annotations

import gc
import inspect
import weakref

import pytest


def kind(shell, name):
    return type(shell.user_ns[name]).__name__


def test_functions_at_cell_level_are_compiled(run, shell):
    run("""%%compile
import functools
def plain(x):
    def inner(y):
        return y
    return inner(x)
if True:
    def under_if(x): return x
for _ in range(1):
    def under_for(x): return x
with open('/dev/null'):
    def under_with(x): return x
try:
    def under_try(x): return x
except ValueError:
    def under_except(x): return x
else:
    def under_else(x): return x
finally:
    def under_finally(x): return x
match 1:
    case 1:
        def under_case(x): return x
squared = lambda x: x * x
""")
    names = ["plain", "under_if", "under_for", "under_with", "under_try", "under_else", "under_finally", "under_case"]
    assert {kind(shell, name) for name in names} == {"CompiledFunction"}
    assert kind(shell, "squared") == "function"
    assert inspect.isfunction(shell.user_ns["plain"].fn) and shell.user_ns["plain"](3) == 3


def test_the_outermost_decorator_is_included(run, shell):
    run("""%%compile
import functools
def twice(f):
    @functools.wraps(f)
    def call(x): return f(f(x))
    return call
@twice
def add(x): return x + 1
""")
    add = shell.user_ns["add"]
    assert kind(shell, "add") == "CompiledFunction" and add(1) == 3
    assert type(add.fn.__wrapped__).__name__ == "function"


def test_modules_get_a_compiled_forward_and_the_rest_is_left_with_a_note(run, shell):
    _, out = run("""%%compile
import functools, torch
class Net(torch.nn.Module):
    def forward(self, x): return x
    def other(self, x): return x
class Child(Net): pass
class Settings:
    def method(self): return 1
async def later(x): return x
@functools.lru_cache
def cached(x): return x
""")
    net = shell.user_ns["Net"]
    assert type(vars(net)["forward"]).__name__ == "CompiledFunction" and type(vars(net)["other"]).__name__ == "function"
    assert type(vars(shell.user_ns["Settings"])["method"]).__name__ == "function"
    assert kind(shell, "later") == "function" and kind(shell, "cached") == "_lru_cache_wrapper"
    for part in ("class Child (inherits its forward)", "class Settings (not an nn.Module)", "async function later",
                 "cached (a _lru_cache_wrapper after its decorators)"):
        assert part in out
    assert shell.user_ns["Net"]()(5) == 5


def test_the_namespace_stays_as_it_was(run, shell):
    run("first = 1")
    before = set(shell.user_ns)
    run("%%compile\ndef f(x): return x\nf(1)")
    run("f('later')")
    added = {name for name in set(shell.user_ns) - before if not name.startswith("_")}
    assert added == {"f"}
    _, out = run("%who")
    assert out.split() == ["f", "first"]


def test_value_of_the_last_expression(run):
    result, _ = run("%%compile\ndef f(x): return x\nf(41) + 1")
    assert result.result == 42
    result, _ = run("%%compile --quiet\ndef f(x): return x\n")
    assert result.result is None
    result, _ = run("%%compile --no-report\nawait __import__('asyncio').sleep(0, 'slept')")
    assert result.result == "slept"


def test_future_imports_work(run, shell):
    run("%%compile\nfrom __future__ import annotations\ndef f(x: nowhere): return x\n")
    assert kind(shell, "f") == "CompiledFunction"


def test_line_numbers_are_exact(run, shell):
    run("""%%compile

import functools
@functools.wraps(len)
def decorated(x):
    return x

def plain(x):
    return x""")
    assert shell.user_ns["plain"].fn.__code__.co_firstlineno == 8
    assert inspect.getsource(shell.user_ns["plain"].fn) == "def plain(x):\n    return x\n"
    assert shell.user_ns["decorated"].fn.__code__.co_firstlineno == 4
    result, out = run("%%compile\ndef f(x):\n    y = x\n    return y / 0\n\nf(1)", ok=False)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    lines = [entry.lineno for entry in inspect.getinnerframes(result.error_in_exec.__traceback__) if "ipython-input" in entry.filename]
    assert lines == [6, 4] and "----> 4     return y / 0" in out


def test_syntax_errors_show_as_without_the_magic(run, shell, capsys):
    _, out = run("%%compile\nx = 1\ndef f(:\n", ok=False)
    assert "line 3" in out and "SyntaxError" in out and "compile" not in out
    assert "graph" not in out


def test_exceptions_stop_the_cell_like_any_other(run, shell):
    result, _ = run("%%compile\nbefore = 1\nraise KeyError('k')\nafter = 2", ok=False)
    assert repr(result.error_in_exec) == "KeyError('k')"
    assert "before" in shell.user_ns and "after" not in shell.user_ns


@pytest.mark.parametrize(("line", "message"), [
    ("--bakcend eager", "unknown option '--bakcend', did you mean --backend?; valid options: --backend, --dynamic"),
    ("--backend nope", "unknown backend 'nope'; valid ones: aot_eager, eager"),
    ("--backend", "expected one argument; valid options: --backend"),
    ("--mode fast", "unknown mode 'fast'; valid ones: default, reduce-overhead"),
    ("--show gards", "unknown report section 'gards'; valid ones: source, graphs"),
    ("--dynamic --static", "exclude each other"),
    ("--backend eager --tiered", "--tiered and --verify are for the backend triton_cpp"),
    ("eager", "unknown option 'eager'"),
    ("'open", "No closing quotation"),
])
def test_bad_options_name_the_valid_ones_and_run_nothing(run, shell, capsys, line, message):
    shell.run_cell(f"%%compile {line}\nran = True")
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert "ran" not in shell.user_ns and "Traceback" not in captured.out + captured.err


def test_options_reach_the_compiler(run, shell):
    run("%%compile --backend eager --dynamic --fullgraph --mode default\ndef f(x): return x")
    assert shell.user_ns["f"].keywords == {"backend": "eager", "dynamic": True, "fullgraph": True, "mode": "default"}
    run("%%compile --static\ndef f(x): return x")
    assert shell.user_ns["f"].keywords == {"dynamic": False}
    run("%%compile --tiered --verify\ndef f(x): return x")
    assert shell.user_ns["f"].keywords == {"options": {"tiered": True, "verify": True}}


def test_redefinition_frees_the_old_function(run, shell):
    cell = "%%compile\nclass Data: pass\ndef f(x, kept=Data()): return x\nf(1)"
    run(cell)
    old = weakref.ref(shell.user_ns["f"].fn)
    data = weakref.ref(shell.user_ns["Data"])
    run(cell)
    run(cell.replace("return x", "return x + 1"))
    gc.collect()
    assert old() is None and data() is None


def test_stacks_with_time(run, shell):
    for cell in ("%%time\n%%compile\ndef f(x):\n    return x / 0\n", "%%compile\n%%time\ndef f(x):\n    return x / 0\n"):
        _, out = run(cell)
        assert "Wall time" in out and "f: not called yet" in out
        _, out = run("f(1)", ok=False)
        assert "return x / 0" in out and "● " in out
        assert kind(shell, "f") == "CompiledFunction"


def test_other_magics_are_refused_clearly(run, capsys, shell):
    shell.run_cell("%%compile\n%%bash\necho hi")
    captured = capsys.readouterr()
    assert "can't be combined with %%bash; it can with %%time, %%timeit, %%capture" in captured.err + captured.out


def test_magic_that_bypasses_the_transformers_says_so(shell, capsys):
    shell.run_cell("%%prun\n%%compile\ndef f(x): return x")
    captured = capsys.readouterr()
    assert "put it in a later cell" in captured.err + captured.out


def test_run_by_name(run, shell):
    shell.run_cell_magic("compile", "--quiet", "def f(x): return x\n")
    assert kind(shell, "f") == "CompiledFunction"
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("compile", "", "1 / 0\n")
