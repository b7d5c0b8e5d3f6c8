# mypy: ignore-errors
"""What is said about generated code: each node's fate and line, each kernel's traffic and time; in explain, events, logs and reports."""

from __future__ import annotations

import logging

import sympy
import torch

import dynamo_nb
from dynamo_nb.backends.registry import lookup_backend
from dynamo_nb.backends.triton_cpp import cpp_printer, measure
from dynamo_nb.backends.triton_cpp.ir import Buffer, DType, Kernel, Load, Phase, Store
from dynamo_nb.backends.triton_cpp.provenance import location
from dynamo_nb.backends.triton_cpp.traffic import traffic
from dynamo_nb.core import events
from dynamo_nb.core.generated import KernelRecord, amount_text, roofline_text
from dynamo_nb.reports import Collector

X = torch.linspace(-2, 3, 32).reshape(4, 8)
HERE = "test_explain.py"


def captured(fn, *args, dynamic=None):
    """The graph that our tracer makes, its inputs, and the trace's fakes."""
    found = []

    def backend(gm, inputs, *, fake_inputs):
        found.append((gm, inputs, fake_inputs))
        return gm.forward

    backend.takes_fake_inputs = True
    dynamo_nb.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)(*args)
    return found[0]


def explained(fn, *args, dynamic=None, **options):
    gm, inputs, fakes = captured(fn, *args, dynamic=dynamic)
    return lookup_backend("triton_cpp").explain(gm, inputs, fake_inputs=fakes, **options)


def line_of(fn, offset):
    return fn.__code__.co_firstlineno + offset


def mixed(x, w):
    soft = torch.softmax(x * 2, -1)
    product = soft @ w
    return product.relu().sum(), x.t()


def test_each_node_is_fused_or_says_why_not():
    graph, = explained(mixed, X, torch.ones(8, 3)).graphs
    fates = {n.target: n for n in graph.nodes}
    assert fates["aten.mm.default"].outcome == "ATen: no lowering"
    assert fates["aten.mul.Tensor"].outcome == fates["aten._softmax.default"].outcome == "fused into k0"
    assert fates["aten.relu.default"].kernels == fates["aten.sum.dim_IntList"].kernels != ("k0",)
    assert fates["aten.permute.default"].outcome == "view, no code"
    assert graph.role == "inference" and graph.headline() == "inference graph: 4 operations in 2 kernels, 1 call of ATen"


def test_nodes_and_kernels_name_the_users_lines():
    graph, = explained(mixed, X, torch.ones(8, 3)).graphs
    lines = {n.target: n.location.line - mixed.__code__.co_firstlineno for n in graph.nodes}
    assert lines["aten._softmax.default"] == 1 and lines["aten.mm.default"] == 2 and lines["aten.relu.default"] == 3
    assert [p.line for p in graph.kernels[0].locations] == [line_of(mixed, 1)]
    assert graph.kernels[0].title() == f"k0, C++, for mul, _softmax ({HERE}:{line_of(mixed, 1)})"


def test_backward_nodes_name_the_line_whose_gradient_they_are():
    def fn(x):
        y = torch.tanh(x)
        return (y * y).sum()

    forward, backward = explained(fn, X.clone().requires_grad_()).graphs
    assert (forward.role, backward.role) == ("forward", "backward")
    lines = {n.target: n.location.line - fn.__code__.co_firstlineno for n in backward.nodes}
    assert lines["aten.add.Tensor"] == lines["aten.expand.default"] == 2 and lines["aten.sub.Tensor"] == lines["aten.tanh.default"] == 1
    assert {k for n in backward.nodes for k in n.kernels} == {k.name for k in backward.kernels} != set()


def test_an_operation_computed_twice_is_in_both_kernels():
    def fn(x, y):
        doubled = x * 2
        return doubled.sum(), torch.sort((doubled + 1) @ y)[0]

    graph, = explained(fn, X, torch.ones(8, 2)).graphs
    kernels = {n.target: n.kernels for n in graph.nodes}
    (total,), (plus,) = kernels["aten.sum.dim_IntList"], kernels["aten.add.Tensor"]
    assert total != plus and set(kernels["aten.mul.Tensor"]) == {total, plus}


def test_writes_and_views_laid_out_anew_are_kernels_work():
    def fn(x, w):
        x.mul_(2)
        return torch.nn.functional.multi_head_attention_forward(
            x[:, None], x[:, None], x[:, None], 8, 2, w, None, None, None, False, 0.0, w[:8], None, need_weights=False)[0]

    graph, = explained(fn, X.clone(), torch.rand(24, 8)).graphs
    fates = {n.target: n for n in graph.nodes}
    assert fates["aten.copy_.default"].kind != "view"
    assert all(k.nodes and k.locations for k in graph.kernels) and all(n.kernels for n in graph.nodes if n.kind == "kernel")


def test_traffic_counts_each_element_once():
    def fn(x, y):
        return torch.softmax(x + y, -1), x[:, 2:4].sum()

    graph, = explained(fn, X, torch.ones(8)).graphs
    first, second = graph.kernels
    assert (first.bytes_read, first.bytes_written) == (4 * (32 + 8), 4 * 32)
    assert (second.bytes_read, second.bytes_written) == (4 * 8, 4)
    assert first.read == "160" and first.loops == "4 of 8"


def test_traffic_of_symbolic_sizes_is_an_expression_with_the_examples_value():
    graph, = explained(lambda x: x.relu() + 1, X, dynamic=True).graphs
    kernel, = graph.kernels
    symbols = sympy.sympify(kernel.read).free_symbols
    assert len(symbols) == 2 and kernel.bytes_read == kernel.bytes_written == 128
    assert "bytes (128 B in the example)" in graph.text()


def test_a_gather_reads_what_it_gathers_and_the_indices():
    i, j, row = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("i", "j", "row"))
    loops = ((i, sympy.Integer(3)), (j, sympy.Integer(4)))
    sizes = {"table": (DType.f32, 1000, 4), "index": (DType.i64, 3, 1), "out": (DType.f32, 3, 4)}
    buffers = {name: Buffer(name, dtype, (sympy.Integer(n), sympy.Integer(m)), (sympy.Integer(m), sympy.Integer(1)), "input", X.device)
               for name, (dtype, n, m) in sizes.items()}
    value = Load(DType.f32, "table", 4 * row + j, ((row, Load(DType.i64, "index", i)),))
    kernel = Kernel("k0", loops, (Phase((), (Store("out", loops, 4 * i + j, value),)),), ("table", "index"), ("out",), (), buffers)
    assert traffic(kernel) == (3 * 4 * 4 + 3 * 8, 3 * 4 * 4)


def test_an_input_changed_in_place_is_read_and_written():
    i = sympy.Symbol("i", integer=True, nonnegative=True)
    loops, buffer = ((i, sympy.Integer(8)),), Buffer("x", DType.f32, (sympy.Integer(8),), (sympy.Integer(1),), "input", X.device)
    kernel = Kernel("k0", loops, (Phase((), (Store("x", loops, i, Load(DType.f32, "x", i)),)),), (), ("x",), (), {"x": buffer})
    assert traffic(kernel) == (32, 32)


def test_sources_are_split_by_kernel():
    graph, = explained(mixed, X, torch.ones(8, 3)).graphs
    for kernel in graph.kernels:
        assert kernel.source.startswith(f'extern "C" void {kernel.name}(') and kernel.source.endswith("\n}")
        assert kernel.source in graph.source and kernel.source in graph.text() and kernel.source not in graph.text(source=False)
    assert "exp_f32(" in graph.kernels[0].source and "INLINE f32 exp_f32" in graph.source


def test_triton_sources_too():
    graph, = explained(mixed, X, torch.ones(8, 3), codegen="triton").graphs
    assert [k.language for k in graph.kernels] == ["Triton", "Triton"]
    for kernel in graph.kernels:
        assert kernel.source.startswith("@triton.jit") and f"def {kernel.name}(" in kernel.source and kernel.source.count("def ") == 1
        assert "tl.store" in kernel.source


def test_plain_fx_graphs_are_explained_by_their_stack_traces():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 2)

        def forward(self, x):
            return torch.relu(self.linear(x)) * 2

    gm = torch.fx.symbolic_trace(Net())
    for node in gm.graph.nodes:
        node.stack_trace = f'  File "net.py", line {3 + len(node.name)}, in forward\n    text of {node.name}'
    assert location(next(iter(gm.graph.nodes))).text == "text of x"
    with torch.no_grad():
        graph, = lookup_backend("triton_cpp").explain(gm, [X]).graphs
    fates = {n.target: n for n in graph.nodes}
    assert fates["aten.relu.default"].captured == "relu" and fates["aten.relu.default"].location.line == 7
    assert fates["aten.addmm.default"].kind == "aten"


def test_measuring_gives_times_and_shares(monkeypatch):
    monkeypatch.setattr(measure, "COPIED", 1 << 18)
    monkeypatch.setattr(measure, "ENOUGH", 0.001)
    measure.bandwidth.cache_clear()
    try:
        big = torch.rand(256, 1024)
        made = explained(lambda x: (torch.softmax(x, -1) + 1).t().contiguous(), big, measure=True, dynamic=True)
    finally:
        measure.bandwidth.cache_clear()
    assert made.kernels
    for kernel in made.kernels:
        assert kernel.seconds > 0 and kernel.bandwidth > 1e7 and kernel.share == kernel.bytes / kernel.bandwidth / kernel.seconds
    assert " GB/s takes " in str(made)


def test_roofline_text_says_when_caches_serve():
    kernel = KernelRecord("k0", "C++", "4", "", "", read="8", written="8", bytes_read=500_000, bytes_written=500_000, seconds=1e-3, bandwidth=2e9)
    assert kernel.share == 0.5 and roofline_text(kernel) == "takes 1 ms; its traffic at 2.0 GB/s takes 500.0 µs: 50% of the roofline"
    slow = KernelRecord("k0", "C++", "4", "", "", bytes_read=500_000, bytes_written=500_000, seconds=1e-4, bandwidth=2e9)
    assert roofline_text(slow).endswith("its data comes from caches")
    assert amount_text("8*s0", None) == "8*s0 bytes" and amount_text("1500", 1500) == "1.5 kB"


def test_graphs_left_to_aten_say_why():
    def fn(x):
        return torch.view_as_complex(x.reshape(4, 4, 2)).abs()

    graph, = explained(fn, X).graphs
    assert {n.target: n.outcome for n in graph.nodes}["aten.abs.default"] == "ATen: dtype torch.complex64"
    assert not graph.kernels and graph.headline() == "inference graph: 0 operations in 0 kernels, 2 calls of ATen"


def test_explain_goes_on_where_the_generator_fails(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("dynamo_nb.backends.triton_cpp.explain.triton_cpp", broken)
    out = dynamo_nb.explain(lambda x: x + 1)(X)
    assert out.graph_count == 1 and "nothing generated: RuntimeError: no such luck" in str(out)


def test_explain_of_a_function_has_the_generated_part():
    out = dynamo_nb.explain(mixed)(X.clone().requires_grad_(), torch.ones(8, 3))
    assert [g.role for g in out.generated[0].graphs] == ["forward", "backward"]
    assert "  Graph 1, forward graph: " in str(out) and "    aten.mm.default: ATen: no lowering" in str(out)


def test_output_code_log_is_by_kernel(caplog):
    logger = logging.getLogger("dynamo_nb.output_code")
    caplog.set_level(logging.INFO, logger=logger.name)
    dynamo_nb.compile(mixed, backend="triton_cpp")(X, torch.ones(8, 3))
    text = next(r.getMessage() for r in caplog.records if r.name == logger.name)
    assert "k0, C++, for mul, _softmax" in text and 'extern "C" void k0(' in text and "ATen: no lowering" in text


def test_reports_show_kernels_and_later_backward_graphs():
    collector = Collector()
    fn = dynamo_nb.compile(lambda x: torch.softmax(x, -1).sum(0), backend="triton_cpp")
    with collector.listening():
        out = fn(X.clone().requires_grad_())
    before = collector.report("f")
    assert "forward graph" in before.text() and "backward graph" not in before.text()
    out.sum().backward()
    after = collector.report("f")
    assert "backward graph: " in after.text() and "fused into k0" in after.text() and f"{HERE}:" in after.text()
    html = after.html()
    assert "<summary>Kernels (" in html and "extern &quot;C&quot; void k0(" in html and "decisions of the scheduler" in html


def test_backends_without_generated_code_have_no_kernels():
    collector = Collector()
    with collector.listening():
        dynamo_nb.compile(lambda x: x + 1, backend="eager")(X)
    report = collector.report("f")
    assert "Kernels" not in report.text() and "<summary>Kernels" not in report.html()


def test_events_carry_the_files_of_the_nodes():
    seen = []
    with events.listening(lambda kind, what: seen.append(what) if kind == "generated" else None):
        dynamo_nb.compile(lambda x: x.relu() + 1, backend="triton_cpp")(X)
    assert seen[-1].files == {__file__}


def test_rows_are_vectorised_where_row_statistics_are_kept_too():
    """Saved means and variances are read once a row; that they are contiguous over rows says nothing about the loop over columns."""
    def fn(x):
        return torch.softmax(torch.nn.functional.layer_norm(x, (8,)), -1)

    seen = []
    with events.listening(lambda kind, what: seen.append(what) if kind == "generated" else None):
        dynamo_nb.compile(fn, backend="triton_cpp")(X.clone().requires_grad_())
    kernel = next(k for k in seen[0].kernels if k.phases)
    assert len(kernel.writes) == 3 and cpp_printer.form_of(kernel) == "inner"


def test_texts_of_what_is_used_twice_at_every_step_stay_short():
    def fn(x):
        for _ in range(30):
            x = x * x + x
        return x

    seen = []
    with events.listening(lambda kind, record: seen.append(record) if kind == "generated" else None):
        dynamo_nb.compile(fn)(torch.ones(3))
    assert len(seen[0].text()) < 20_000
    assert "t0 = add(" in seen[0].text() and len(repr(seen[0].kernels)) < 20_000
