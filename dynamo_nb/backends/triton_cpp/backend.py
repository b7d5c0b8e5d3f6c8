"""The backend `triton_cpp`: AOTAutograd, then lower, schedule, print, build, run (design 7).

In: the captured graph. Out: a callable. A graph that can't be lowered, a device without a printer or a missing
compiler falls back to ATen operator by operator; the reason stands in the report's generated code.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import time
from typing import Any

import torch
import torch.fx

from ...core import events
from ...core.logs import ALWAYS, artifact_logger
from ...core.settings import raises_internal_errors, settings
from ...native import NotPlain, Program, pool_limit
from ..aot import aot_compile, boxed, decompositions, run_as_is
from ..captured import AsCaptured
from ..partition import min_cut_partition
from . import cpp_build, cpp_printer, lower_indexing, lower_pointwise, lower_reductions, lower_views, lower_writes  # noqa: F401  (the lowerings register themselves)
from .assemble import Assembler, Integers, Measure, needed_after
from .compiled import CompiledGraph, hints_of
from .cpp_exprs import IndexPrinter
from .emit import Emitter
from .fates import fates
from .graph import AtenCall, GraphLowering, LoweredGraph, NotLowered
from .inplace import update_in_place
from .ir import Kernel
from .provenance import Provenance
from .schedule import Group, Schedule, Scheduler
from .tiered import Tiered
from .verify import Verified

log = artifact_logger("output_code")


def compile_graph(
    gm: torch.fx.GraphModule, inputs: list[Any], seen: list[CompiledGraph] | None = None, codegen: str = "", role: str = "",
    provenance: Provenance | None = None, tiered: bool = False, verify: bool = False, max_autotune: bool = False,
) -> Any:
    """An AOTAutograd compiler: a boxed callable for an ATen graph; what became of it is added to `seen`.

    role: forward, backward or inference; provenance: of the captured graph. Both are for reports.
    """
    plain = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph)) if tiered or verify else gm
    try:
        aten = boxed(plain.forward) if tiered else None
        run, compiled = _generate(gm, codegen, provenance or Provenance(), aten, max_autotune, unguarded=role == "backward")
    except Exception as err:
        if not isinstance(err, NotLowered):
            if raises_internal_errors():
                raise
            ALWAYS.warning("triton_cpp leaves a graph to ATen: %s: %s (please report; DYNAMO_NB_RAISE_INTERNAL=1 raises it)", type(err).__name__, err)
        why = str(err) if isinstance(err, NotLowered) else f"internal error, {type(err).__name__}: {err}"
        run, compiled = boxed(run_as_is(gm, inputs)), CompiledGraph([], [], [], "", {}, why)
    compiled.role = role
    if isinstance(run, Tiered):
        compiled.waits = True
        run.changed = functools.partial(_took_over, compiled)
    if verify:
        run = Verified(run, plain, compiled.nodes, lambda part: _generate(part, codegen, Provenance())[0])
    if role == "backward" and not compiled.why:
        run = _or_aten(run, gm.forward)
    if seen is not None:
        seen.append(compiled)
    if log.isEnabledFor(20):
        log.info("GENERATED CODE\n%s", compiled.text())
    events.emit("generated", compiled)
    return run


def _or_aten(run: Any, aten: Any) -> Any:
    """A backward also gets what no guard has seen, and ATen runs it then.

    That is batches of gradients (is_grads_batched=True), torch.func's wrappers, tangents, and what hooks of saved tensors unpack otherwise.
    """

    def backward(args: list[Any]) -> Any:
        given = list(args) if changes else args     # a program says so before it takes anything
        try:
            return run(args)
        except NotPlain:
            return aten(*given)

    changes = not isinstance(run, Program)

    backward._boxed_call = True  # type: ignore[attr-defined]
    return backward


def _took_over(compiled: CompiledGraph) -> None:
    compiled.waits = False
    events.emit("generated", compiled)


def _generate(
    gm: torch.fx.GraphModule, codegen: str, provenance: Provenance, aten: Any = None, autotune: bool = False, unguarded: bool = False,
) -> tuple[Any, CompiledGraph]:
    clock = [time.perf_counter()]
    update_in_place(gm)
    lowering = GraphLowering(gm)
    lowered = lowering.run()
    language, make = _writer(lowered, codegen, aten, autotune, unguarded)
    clock.append(time.perf_counter())
    schedule = Scheduler(lowered).run()
    kernels = _kernels(lowered, schedule)
    clock.append(time.perf_counter())
    program, source = make(lowered, schedule, kernels)
    clock.append(time.perf_counter())
    seconds = dict(zip(("lower", "schedule", "build"), (b - a for a, b in itertools.pairwise(clock)), strict=True))
    aten = [(str(s.target), s.why) for s in schedule.steps if isinstance(s, AtenCall)]
    nodes = fates(gm, lowering, schedule, kernels, provenance)
    return program, CompiledGraph(list(kernels.values()), aten, schedule.decisions, source, seconds, "", nodes, hints_of(gm), language=language)


def _writer(lowered: LoweredGraph, codegen: str, aten: Any, autotune: bool, unguarded: bool) -> tuple[str, Any]:
    """Which language: C++ for tensors on the CPU, Triton for those on a CUDA device or where it is asked for."""
    devices = {b.device.type for b in lowered.buffers.values()}
    if codegen == "triton" or devices == {"cuda"}:
        return "Triton", functools.partial(_triton, autotune=autotune, unguarded=unguarded)
    if devices <= {"cpu"}:
        return "C++", functools.partial(_program, aten=aten, unguarded=unguarded)
    raise NotLowered(f"tensors on {', '.join(sorted(devices))}")


def _triton(lowered: LoweredGraph, schedule: Schedule, kernels: dict[int, Kernel], autotune: bool, unguarded: bool) -> tuple[Any, str]:
    from .triton_index import CannotPrint
    from .triton_runner import TritonRunner

    try:
        runner = TritonRunner(lowered, schedule, kernels, autotune, unguarded)
    except CannotPrint as err:
        raise NotLowered(f"no Triton form: {err}") from None
    except ImportError:
        raise NotLowered("triton isn't installed: pip install 'dynamo-nb[triton]'") from None
    return runner, "\n\n".join(launcher.source.text for launcher in runner.launchers)


def _kernels(lowered: LoweredGraph, schedule: Schedule) -> dict[int, Kernel]:
    made = {}
    for i, step in enumerate(schedule.steps):
        if isinstance(step, Group):
            made[i] = Emitter(lowered.exprs, lowered.buffers, step, f"k{i}", needed_after(schedule, i)).kernel()
    return made


def _program(
    lowered: LoweredGraph, schedule: Schedule, kernels: dict[int, Kernel], aten: Any = None, unguarded: bool = False,
) -> tuple[Any, str]:
    """aten: what runs meanwhile, where the C++ may be built in a thread."""
    unit = cpp_printer.print_unit([k for k in kernels.values() if k.phases])
    assembler = Assembler(lowered, schedule, kernels, {name: (launch.count, launch.grain) for name, launch in unit.kernels.items()}, unguarded)
    assembler.assemble()
    finish = functools.partial(_finished, lowered, assembler)
    if not unit.kernels and not assembler.integers.derived:
        return finish(None), ""
    source = unit.extended(derived_function(assembler.integers)).source
    library = cpp_build.load(source, build=aten is None)
    if library is not None:
        return finish(library), source
    if aten is None or cpp_build.compiler() is None:
        raise NotLowered("no working C++ compiler")
    return Tiered(aten, lambda: finish(built) if (built := cpp_build.load(source)) is not None else None), source


def _finished(lowered: LoweredGraph, assembler: Assembler, library: cpp_build.Library | None) -> Any:
    steps = assembler.with_addresses(library.address) if library is not None else assembler.steps
    pool_limit(min(settings.buffer_pool_mb << 20, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8))
    program = Program(assembler.inputs(), len(assembler.slots), len(assembler.integers.places), steps, assembler.outputs())
    absent = [i for i, value in enumerate(lowered.inputs) if value is None]
    constants, measured = [t for _, t in lowered.constants], list(assembler.integers.measured.values())
    return Runner(program, constants, absent, measured) if constants or absent or measured else program


def derived_function(integers: Integers) -> str:
    """C text that computes size expressions from the symbols, in place."""
    if not integers.derived:
        return ""
    text = IndexPrinter({s: f"i[{place}]" for s, place in integers.places.items() if s.is_Symbol})
    lines = [f"    i[{integers.places[e]}] = {text(e)};" for e in integers.derived]
    return "\n".join(["", 'extern "C" void derived(long long *i)', "{", *lines, "}", ""])


class Runner:
    """A program whose arguments aren't just the call's: the graph's constants join them.

    absent: places of arguments that are always None, and go. measured: sizes and strides of arguments that the program takes as integers.
    """

    _boxed_call = True

    def __init__(self, program: Any, constants: list[torch.Tensor], absent: list[int], measured: list[Measure]) -> None:
        self.program, self.constants, self.absent, self.measured = program, constants, absent, measured

    def __call__(self, args: list[Any]) -> Any:
        sizes = [getattr(args[i], part)(dim) for i, part, dim in self.measured] if self.measured else ()
        for i in reversed(self.absent):
            del args[i]
        if self.constants:
            args.extend(self.constants)
        args.extend(sizes)
        return self.program(args)


def triton_cpp(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any) -> Any:
    """Our own code generator: fused C++ kernels on the CPU, Triton kernels on CUDA devices; everything else is called.

    options: codegen, "triton" for Triton on the CPU too (in its interpreter, with TRITON_INTERPRET=1); tiered, let ATen run the graph
    until the C++ is built (`tiered.py`); verify, compare every call with ATen (`verify.py`); max_autotune, time Triton's blocks
    (`triton_autotune.py`), also `config.max_autotune`.
    """
    chosen = {"max_autotune": settings.max_autotune} | {n: options.pop(n) for n in ("codegen", "tiered", "verify", "max_autotune") if n in options}
    if options or chosen.get("codegen", "") not in ("", "cpp", "triton"):
        raise ValueError(f"triton_cpp takes the options codegen='cpp' or 'triton', tiered, verify, max_autotune (True or False), not {options or chosen}")
    seen: list[CompiledGraph] = []
    compiler = functools.partial(compile_graph, seen=seen, provenance=Provenance(gm), **chosen)
    roles = {f"{short}_compiler": functools.partial(compiler, role=role) for short, role in (("fw", "forward"), ("bw", "backward"), ("inference", "inference"))}
    run = aot_compile(gm, example_inputs, fake_inputs, **roles, decompositions=decompositions(), partition_fn=min_cut_partition)
    if isinstance(run, AsCaptured):
        seen[:] = [CompiledGraph([], [], [], "", {}, run.why)]       # what was generated before it came to that doesn't run
        events.emit("generated", seen[-1])
    run.generated_graphs = seen  # type: ignore[attr-defined]
    return run
