"""Calls that skip AOTAutograd's wrapper do what eager does: gradients, errors, hooks, layouts, saved tensors."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import forward_ad

import dynamo_nb
from dynamo_nb.backends.aot import aot_autograd

BACKENDS = ["aot_eager", "triton_cpp"]


def leaves(*shapes, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, generator=g).requires_grad_() for s in shapes]


def grads(fn, args, weight):
    out = fn(*args)
    outs = out if isinstance(out, tuple) else (out,)
    loss = sum((weight(i) * o).sum() for i, o in enumerate(outs) if o.requires_grad)
    found = torch.autograd.grad(loss, [a for a in args if a.requires_grad], allow_unused=True)
    return [o.detach().clone() for o in outs], found


def same(fn, *shapes, backend, rounds=3):
    compiled = dynamo_nb.compile(fn, backend=backend)
    for k in range(rounds):
        want, got = (grads(f, leaves(*shapes, seed=k), lambda i: i + 1.0) for f in (fn, compiled))
        for a, b in zip(want[0] + list(want[1]), got[0] + list(got[1]), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
        assert [o.stride() for o in want[0]] == [o.stride() for o in got[0]]
    return compiled


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn, shapes", [
    (lambda x, w: (x @ w).relu(), [(3, 4), (4, 5)]),
    (lambda x, w: ((x @ w).tanh(), (x > 0).float(), x.sum()), [(3, 4), (4, 5)]),           # a result without a gradient
    (lambda x, w: (x.t() * 2).contiguous().t(), [(3, 4), (4, 5)]),                         # an input that isn't used
    (lambda x, w: torch.nn.functional.gelu(torch.nn.functional.linear(x, w)), [(2, 3, 4), (5, 4)]),
    (lambda x, w: (x * w, x + w), [(3, 1), (1, 4)]),
])
def test_gradients(backend, fn, shapes):
    same(fn, *shapes, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_some_results_get_a_gradient(backend):
    def fn(x):
        return x.sin(), x.cos() * 2

    compiled = dynamo_nb.compile(fn, backend=backend)
    for k in (0, 1, 0, 1):
        (x,) = leaves((4,))
        (y,) = leaves((4,))
        fn(x)[k].sum().backward()
        compiled(y)[k].sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_any_layout_come_in(backend):
    def fn(x):
        return (x * x).exp()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for incoming in (torch.ones(4, 3), torch.ones(3, 4).t(), torch.ones(()).expand(4, 3), torch.ones(8, 6)[::2, ::2]):
        (x,), (y,) = leaves((4, 3)), leaves((4, 3))
        fn(x).backward(incoming)
        compiled(y).backward(incoming)
        torch.testing.assert_close(x.grad, y.grad)
        assert x.grad.stride() == y.grad.stride()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 1, 3])
def test_the_graph_can_be_kept_at_any_call(backend, warm):
    compiled = dynamo_nb.compile(lambda x: (x.sin() * x).sum(), backend=backend)
    for _ in range(warm):
        compiled(*leaves((4,))).backward()
    (x,) = leaves((4,))
    loss = compiled(x)
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 3])
def test_a_second_derivative_is_refused_not_wrong(backend, warm):
    compiled = dynamo_nb.compile(lambda x: (x.sin() * x).sum(), backend=backend)
    for _ in range(warm):
        compiled(*leaves((4,))).backward()
    (x,) = leaves((4,))
    (g,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    (y,) = leaves((4,))
    torch.testing.assert_close(g, torch.autograd.grad((y.sin() * y).sum(), y)[0])
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="double backward|differentiated twice"):
        g.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 3])
def test_what_was_saved_must_not_change(backend, warm):
    def fn(x, y):
        return (x * y).sum()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(warm):
        compiled(*leaves((4,), (4,))).backward()
    x, y = leaves((4,), (4,))
    loss = compiled(x, y)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("fn", [
    lambda x: x.exp().view(-1),
    lambda x: x.exp().t(),
    lambda x: ((s := x.exp()).view(-1), s * 2),
    lambda x: ((s := x.exp()).detach(), s.sum()),
    lambda x: ((s := x.exp()).detach().view(-1), s.sum()),
    lambda x: ((s := x.sigmoid()).diagonal(), s.sum()),
])
def test_results_that_show_what_was_saved_must_not_change(backend, warm, fn):
    compiled = dynamo_nb.compile(fn, backend=backend)

    def loss(out):
        return sum(t.sum() for t in (out if isinstance(out, tuple) else (out,)) if t.requires_grad)

    for _ in range(warm):
        loss(compiled(*leaves((3, 3)))).backward()
    for f in (fn, compiled):
        out = f(*leaves((3, 3)))
        with torch.no_grad():
            (out[0] if isinstance(out, tuple) else out).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss(out).backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("fn", [lambda x, w: x @ w.t(), lambda x, w: x[0] * x[0] * w, lambda x, w: (x.view(9) * w.view(9)).view(3, 3)])
def test_arguments_seen_through_saved_views_must_not_change(backend, warm, fn):
    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(warm):
        compiled(*leaves((3, 3), (3, 3))).sum().backward()
    for f in (fn, compiled):
        x, w = leaves((3, 3), (3, 3))
        out = f(x, w)
        with torch.no_grad():
            x.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_can_be_changed_with_gradients(backend):
    """Results of operators in Python that are views of temporaries included."""

    def fn(x):
        s = x.sin()
        s.t().add_(1)
        return s, (x * 2).t()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(3):
        (x,), (y,) = leaves((3, 3)), leaves((3, 3))
        for f, arg in ((fn, x), (compiled, y)):
            a, b = f(arg)
            a.mul_(2)
            b.mul_(3)
            (a * b).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_what_carries_no_gradient(backend):
    def fn(x, y):
        return x * x + y.detach() * 2

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(3):
        found = []
        for f in (fn, compiled):
            x, y = leaves((4, 3), (4, 3))
            (f(x[:, 1], y[:, 1] * 1)).sum().backward()
            found += [x.grad, y.grad]
        torch.testing.assert_close(found[0], found[2])
        assert found[1] is None and found[3] is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_of_saved_tensors_and_of_gradients_run(backend):
    compiled = dynamo_nb.compile(lambda x: x.sin() * x, backend=backend)
    for _ in range(3):
        compiled(*leaves((4,))).sum().backward()
    (x,) = leaves((4,))
    packed, seen = [], []
    x.register_hook(seen.append)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t.shape), t)[1], lambda t: t):
        out = compiled(x)
    assert packed
    out.register_hook(lambda g: seen.append(g) or g * 2)
    out.sum().backward()
    assert len(seen) == 2
    (y,) = leaves((4,))
    (2 * y.sin() * y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_modes_and_transforms_around_a_trained_graph(backend):
    compiled = dynamo_nb.compile(lambda x: x.sin() * x, backend=backend)
    (x,) = leaves((4,))
    for _ in range(3):
        compiled(x).sum().backward()
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    assert compiled(x).requires_grad
    want = torch.func.grad(lambda t: (t.sin() * t).sum())(x.detach())
    torch.testing.assert_close(torch.func.grad(lambda t: compiled(t).sum())(x.detach()), want)


def test_backward_from_several_threads():
    compiled = dynamo_nb.compile(lambda x: (x.sin() * x).sum())
    (want,) = leaves((64,))
    (want.sin() * want).sum().backward()
    bad = []

    def work():
        for _ in range(20):
            (x,) = leaves((64,))
            compiled(x).backward()
            if not torch.allclose(x.grad, want.grad):
                bad.append(x.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_symbolic_sizes():
    compiled = dynamo_nb.compile(lambda x: (x.exp() * x.shape[0]).sum(), dynamic=True)
    for n in (5, 6, 7, 9):
        for _ in range(2):
            (x,), (y,) = leaves((n, 3)), leaves((n, 3))
            compiled(x).backward()
            (y.exp() * n).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
@pytest.mark.parametrize("grad", [False, True])
def test_forward_mode_tangents_go_through(backend, grad):
    """The kernels would drop them; the call is eager's then, also of a view and of a parameter."""

    def fn(x, w):
        return x.sin() * 2 * w

    compiled = dynamo_nb.compile(fn, backend=backend)
    w = torch.full((3,), 2.0, requires_grad=grad)
    for _ in range(3):
        out = compiled(torch.ones(3), w)
        if grad:
            out.sum().backward()
    with forward_ad.dual_level():
        tall = forward_ad.make_dual(torch.ones(2, 3), torch.arange(6.0).view(2, 3))
        dual = forward_ad.make_dual(w, torch.ones(3))
        for x, weight in ((tall[0], w), (torch.ones(3), dual), (tall[1] * 1, dual)):
            want, got = forward_ad.unpack_dual(fn(x, weight)), forward_ad.unpack_dual(compiled(x, weight))
            torch.testing.assert_close(got.primal, want.primal)
            torch.testing.assert_close(got.tangent, want.tangent)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("warm", [0, 3])
def test_a_batch_of_gradients_goes_through(backend, warm):
    def fn(x):
        return (x.sin() * 2).exp()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(warm):
        compiled(*leaves((3,))).sum().backward()
    (x,) = leaves((3,))
    got, want = (torch.autograd.grad(f(x), x, torch.eye(3), is_grads_batched=True)[0] for f in (compiled, fn))
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.functional.jacobian(f, x.detach(), vectorize=True) for f in (compiled, fn)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transform", [
    lambda vjp: torch.func.grad(lambda t: (vjp(t) * t).sum()),
    lambda vjp: lambda t: torch.func.vmap(vjp)(torch.stack([t, 2 * t])),
    lambda vjp: lambda t: torch.func.jvp(vjp, (t,), (t,))[1],
    lambda vjp: lambda t: torch.func.vmap(torch.func.grad(lambda u: (vjp(u) * u).sum()))(torch.stack([t, 2 * t])),
])
def test_transforms_of_a_backward(backend, transform):
    def fn(x):
        return (x * 2).exp()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(3):
        compiled(*leaves((3,))).sum().backward()
    found = []
    for f in (fn, compiled):
        (x,) = leaves((3,))
        y = f(x)
        found.append(transform(lambda t: torch.autograd.grad(y, x, t, retain_graph=True)[0])(torch.ones(3)))  # noqa: B023
    torch.testing.assert_close(*found)


def raising(*args):
    raise KeyError("from a hook")


@pytest.mark.parametrize("backend", BACKENDS)
def test_exceptions_of_hooks_come_out_as_they_are(backend):
    compiled = dynamo_nb.compile(lambda x: x.sin() * x, backend=backend)
    for _ in range(3):
        compiled(*leaves((4,))).sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(raising, lambda t: t), pytest.raises(KeyError, match="from a hook"):
        compiled(*leaves((4,)))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, raising):
        out = compiled(*leaves((4,)))
    with pytest.raises(KeyError, match="from a hook"):
        out.sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: "not a tensor"):
        out = compiled(*leaves((4,)))
    with pytest.raises(TypeError):
        out.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_of_gradients_keeps_nothing_alive(backend):
    compiled = dynamo_nb.compile(lambda x: (x.sin() * x).exp(), backend=backend)
    for _ in range(3):
        compiled(*leaves((4,))).sum().backward()
    (x,) = leaves((4,))
    out = compiled(x)
    seen, node = weakref.ref(x), weakref.ref(out)
    del x, out
    assert seen() is None and node() is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_node_looks_like_autograds_own(backend):
    compiled = dynamo_nb.compile(lambda x, y: x.sin() * y, backend=backend)
    for _ in range(3):
        compiled(*leaves((4,), (4,))).sum().backward()
    x, y = leaves((4,), (4,))
    out = compiled(x, y)
    assert "CompiledGraph" in out.grad_fn.name()
    assert {id(fn.variable) for fn, _ in out.grad_fn.next_functions} == {id(x), id(y)}
    seen = []
    out.grad_fn.register_hook(lambda grads, outs: seen.append((len(grads), len(outs))))
    out.grad_fn.register_prehook(lambda outs: seen.append(len(outs)))
    out.retain_grad()
    out.sum().backward()
    assert seen == [1, (2, 1)] and torch.equal(out.grad, torch.ones(4))


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpointing_around_a_trained_graph(backend):
    def fn(x):
        return (x.sin() * x).exp()

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(4):
        (x,), (y,) = leaves((4,)), leaves((4,))
        fn(x).sum().backward()
        torch.utils.checkpoint.checkpoint(lambda t: compiled(t) * 1, y, use_reentrant=False).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("error", [KeyError("k"), IndexError("i"), RuntimeError("r"), StopIteration()])
@pytest.mark.parametrize("when", ["compile", "run"])
def test_exceptions_of_a_backward_come_out_as_they_are(error, when):
    def backward(gm, inputs):
        if when == "compile":
            raise error
        return raise_it

    def raise_it(*args):
        raise error

    compiled = dynamo_nb.compile(lambda x: x.sin(), backend=aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=backward))
    for _ in range(3):
        out = compiled(*leaves((4,)))
        with pytest.raises(type(error)) as caught:
            out.sum().backward()
        assert caught.value is error


def test_aliased_arguments_keep_their_own_versions():
    """`x.data` counts its changes apart from x; no call may join them."""
    compiled = dynamo_nb.compile(lambda x, y: (x * 2).exp() * y)
    for _ in range(3):
        (x,) = leaves((4,))
        compiled(x, x.data).sum().backward()
        x.data.add_(1)
        assert x._version == 0


def test_a_negated_view_comes_in_as_gradient():
    compiled = dynamo_nb.compile(lambda x: x.exp() * 2)
    (x,), (y,) = leaves((4,)), leaves((4,))
    compiled(x).backward(torch._neg_view(torch.ones(4)))
    (y.exp() * 2).backward(-torch.ones(4))
    torch.testing.assert_close(x.grad, y.grad)


HOOKS = {
    "contiguous": (lambda t: t.detach().numpy().copy(), torch.from_numpy),
    "bfloat16": (lambda t: t.to(torch.bfloat16), lambda t: t),
    "double": (lambda t: t.double(), lambda t: t),
    "one element": (lambda t: t, lambda t: torch.ones(1)),
    "same": (lambda t: t, lambda t: t),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_of_saved_tensors_may_give_other_layouts_and_types(backend, changes, hooks):
    def fn(x, w, count):
        if changes:
            count.add_(1)       # through AOTAutograd's own wrapper
        return x * w

    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(2):
        found = []
        for f in (fn, compiled):
            x, w = leaves((3, 4), (4, 3))
            x = x.detach().t().requires_grad_()
            with torch.autograd.graph.saved_tensors_hooks(*HOOKS[hooks]):
                out = f(x, w, torch.zeros(()))
            (out * torch.arange(12.0).view(4, 3)).sum().backward()
            found += [x.grad, w.grad]
        torch.testing.assert_close(found[:2], found[2:], rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn, shapes", [
    (lambda x, y, w: (x.view(6) + y) * w, [(2, 3), (6,), (6,)]),
    (lambda x, y, w: w + y + x.squeeze(0), [(1, 4), (4,), (4,)]),
    (lambda x, y, w: (x.squeeze(0) + y).sin() + w.sum(), [(1, 4), (4,), (4,)]),
])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_dont_share_their_memory(backend, dynamic, fn, shapes):
    compiled = dynamo_nb.compile(fn, backend=backend, dynamic=dynamic)
    want, got = leaves(*shapes), leaves(*shapes)
    for _ in range(3):
        fn(*want).sum().backward()
        compiled(*got).sum().backward()
        torch.testing.assert_close([t.grad for t in got], [t.grad for t in want])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [lambda x, w: torch.where(x > w, x, x * 0.1), lambda x, w: x * w.detach()])
def test_nothing_runs_for_arguments_without_a_gradient(backend, fn):
    compiled = dynamo_nb.compile(fn, backend=backend)
    for _ in range(3):
        x, w = leaves((4,), (4,))
        seen = []
        w.register_hook(seen.append)
        w.register_post_accumulate_grad_hook(seen.append)
        compiled(x, w).sum().backward()
        assert seen == [] and w.grad is None and x.grad is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_batches_of_gradients_of_a_transposed_result(backend, dynamic):
    def fn(x):
        return (x * x).t().exp()

    compiled = dynamo_nb.compile(fn, backend=backend, dynamic=dynamic)
    for _ in range(3):
        (x,) = leaves((2, 3))
        torch.testing.assert_close(*(torch.autograd.functional.jacobian(f, x.detach(), vectorize=True) for f in (compiled, fn)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_tangents_go_through_under_hooks_of_saved_tensors(backend):
    def fn(x, w):
        return x.sin() * w

    compiled = dynamo_nb.compile(fn, backend=backend)
    (w,) = leaves((3,))
    compiled(torch.ones(3), w)
    with forward_ad.dual_level(), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        x = forward_ad.make_dual(torch.ones(3), torch.arange(3.0))
        want, got = (forward_ad.unpack_dual(f(x, w)).tangent for f in (fn, compiled))
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_detached_state_has_no_history_that_lives_on(backend):
    compiled = dynamo_nb.compile(lambda w, h: (w * h.detach()).tanh(), backend=backend)

    class Noticed:
        pass

    (w,) = leaves((4,))
    for _ in range(3):
        h = compiled(w, w * 2)
        kept = Noticed()
        h.grad_fn.metadata["kept"] = kept
        seen = weakref.ref(kept)
        del kept
        out = compiled(w, h)
        del h
        assert seen() is None
    out.sum().backward()


def test_a_backward_frees_what_it_is_done_with():
    alive: list[object] = []

    def backward(gm, inputs):
        def run(args):
            seen = [weakref.ref(a) for a in args if isinstance(a, torch.Tensor)]
            out = gm.forward(*args)
            args.clear()
            alive.append(sum(r() is not None for r in seen))
            return out

        run._boxed_call = True
        return run

    compiled = dynamo_nb.compile(lambda x: x.sin().exp().sin(), backend=aot_autograd(fw_compiler=lambda gm, inputs: gm.forward, bw_compiler=backward))
    (x,) = leaves((4,))
    out = compiled(x)
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    assert alive[1] <= 1 and alive[0] >= alive[1]      # x itself lives
