"""torch functions that ask about state or metadata rather than compute: answered while tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation
from .. import protocol
from ..variables.base import NOTHING, VariableTracker, const
from ..variables.constant import FALSE, NONE, TRUE, ConstantVariable, boolean
from ..variables.misc import OpaqueVariable
from ..variables.numeric import SymNodeVariable
from ..variables.tensor import TensorVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


# Pure questions about modes that a GLOBAL_STATE guard covers.
QUESTIONS = [
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.is_autocast_cache_enabled, torch.are_deterministic_algorithms_enabled, torch.get_float32_matmul_precision, torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled, torch.get_autocast_cpu_dtype, torch.is_autocast_cpu_enabled, torch.get_autocast_gpu_dtype,
    torch._C._is_torch_function_enabled, torch.is_warn_always_enabled, torch.cuda.is_available, torch.cuda.device_count,
    torch.backends.mps.is_available, torch.xpu.is_available, torch.get_num_threads, torch.amp.autocast_mode.is_autocast_available,
    torch.distributed.is_available, torch.backends.mkldnn.is_available, torch._C._get_cudnn_enabled, torch._C._is_any_autocast_enabled,
    torch._C._cuda_getDeviceCount if hasattr(torch._C, "_cuda_getDeviceCount") else torch.cuda.device_count,
]
if torch.distributed.is_available():
    QUESTIONS.append(torch.distributed.is_initialized)


def _question(fn: Any) -> Any:
    def handler(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
        plain = [const(a) for a in args]
        named = {k: const(v) for k, v in kwargs.items()}
        if NOTHING in plain or NOTHING in named.values():
            return None
        return tx.fold(fn, plain, named)

    return handler


for _fn in QUESTIONS:
    handles(_fn)(_question(_fn))

# Answers that hold for all code under compilation.
FIXED: list[tuple[Any, Any]] = [
    (torch.jit.is_scripting, False), (torch.jit.is_tracing, False), (torch._C._get_tracing_state, None),
    (torch.compiler.is_compiling, True), (torch.compiler.is_dynamo_compiling, True), (torch.compiler.is_exporting, False),
    (torch.onnx.is_in_onnx_export, False), (torch._jit_internal.is_scripting, False), (torch.cuda.is_current_stream_capturing, False),
    (torch._C._is_tracing, False), (torch._C._functorch.peek_interpreter_stack, None), (torch._utils.is_compiling, True),
    (torch.fx._symbolic_trace.is_fx_tracing, False), (torch.fx._symbolic_trace.is_fx_symbolic_tracing, False),
]


def _fixed(value: Any) -> Any:
    def handler(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return ConstantVariable(value)

    return handler


for _fn, _value in FIXED:
    handles(_fn)(_fixed(_value))


def register_fixed(fn: Any, value: Any) -> None:
    """Answer calls of fn with a constant; the package's own is_compiling() is added by the api layer."""
    handles(fn)(_fixed(value))


@handles(torch.jit.annotate)
def annotate(tx: Tx, the_type: VariableTracker, value: VariableTracker) -> VariableTracker:
    return value


@handles(torch.overrides.is_tensor_like)
def is_tensor_like(tx: Tx, obj: VariableTracker) -> VariableTracker:
    obj = obj.realize()
    return boolean(isinstance(obj, TensorVariable) or issubclass(obj.python_type(), torch.Tensor) or protocol.type_lookup(obj.python_type(), "__torch_function__") is not protocol.MISSING)


@handles(torch.is_tensor)
def is_tensor(tx: Tx, obj: VariableTracker) -> VariableTracker:
    return boolean(issubclass(obj.realize().python_type(), torch.Tensor))


@handles(torch.is_floating_point, torch.is_complex, torch.is_conj, torch.is_neg, torch.is_signed, torch.is_inference, torch.is_nonzero)
def metadata(tx: Tx, x: VariableTracker) -> VariableTracker | None:
    return None


for _name in ("is_floating_point", "is_complex", "is_conj", "is_neg", "is_signed", "is_inference"):
    def _metadata(tx: Tx, x: VariableTracker, *, name: str = _name) -> VariableTracker | None:
        x = x.realize()
        return x.call_method(tx, name, [], {}) if isinstance(x, TensorVariable) else None

    handles(getattr(torch, _name))(_metadata)


@handles(torch.numel)
def numel(tx: Tx, x: VariableTracker) -> VariableTracker:
    return x.realize().call_method(tx, "numel", [], {})


@handles(torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic, torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)
def has_torch_function(tx: Tx, *args: VariableTracker) -> VariableTracker:
    todo = [a.realize() for a in args]
    while todo:
        item = todo.pop()
        inner = getattr(item, "items", None)
        if isinstance(inner, list):
            todo += [i.realize() for i in inner]
        elif isinstance(item, OpaqueVariable) or (not isinstance(item, (TensorVariable, SymNodeVariable, ConstantVariable)) and protocol.is_python_override(item.python_type(), "__torch_function__")):
            return TRUE
    return FALSE


@handles(torch._C._set_default_dtype, torch.set_default_dtype)
def set_default_dtype(tx: Tx, dtype: VariableTracker) -> VariableTracker:
    tx.recorder.state.set(tx, "default_dtype", const(dtype))
    return NONE


@handles(torch.set_autocast_enabled)
def set_autocast_enabled(tx: Tx, device: VariableTracker, enabled: VariableTracker) -> VariableTracker | None:
    if not isinstance(const(device), str):
        return None
    tx.recorder.state.set(tx, "autocast_enabled", const(enabled), (const(device),))
    return NONE


@handles(torch.set_autocast_dtype)
def set_autocast_dtype(tx: Tx, device: VariableTracker, dtype: VariableTracker) -> VariableTracker:
    tx.recorder.state.set(tx, "autocast_dtype", const(dtype), (const(device),))
    return NONE


@handles(torch.set_autocast_cache_enabled)
def set_autocast_cache_enabled(tx: Tx, enabled: VariableTracker) -> VariableTracker:
    tx.recorder.state.set(tx, "autocast_cache", const(enabled))
    return NONE


@handles(torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache)
def autocast_nesting(tx: Tx) -> VariableTracker:
    """The nesting count only decides when the cast cache is emptied; zero does so at once."""
    return ConstantVariable(0)


@handles(torch._C._log_api_usage_once)
def log_api_usage(tx: Tx, name: VariableTracker) -> VariableTracker:
    return NONE


@handles(torch.device)
def device(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    plain, named = [const(a) for a in args], {k: const(v) for k, v in kwargs.items()}
    if NOTHING in plain or NOTHING in named.values():
        return None
    return tx.fold(torch.device, plain, named)


@handles(torch.manual_seed, torch.seed, torch.initial_seed, torch.get_rng_state, torch.set_rng_state, torch.default_generator.manual_seed)
def seeding(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("seeding or reading torch's random state"))


@handles(torch._assert)
def assert_(tx: Tx, condition: VariableTracker, message: VariableTracker) -> VariableTracker | None:
    condition = condition.realize()
    if isinstance(condition, TensorVariable):
        return None
    if protocol.truth(tx, condition):
        return NONE
    raise tx.raise_from(AssertionError, [message])


@handles(torch._check)
def check(tx: Tx, condition: VariableTracker, message: VariableTracker = NONE) -> VariableTracker | None:
    condition = condition.realize()
    if isinstance(condition, SymNodeVariable):
        torch._check(condition.value)
        return NONE
    if isinstance(condition, ConstantVariable) and condition.value is True:
        return NONE
    return None


@handles(torch._check_is_size)
def check_is_size(tx: Tx, value: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    value = value.realize()
    if isinstance(value, SymNodeVariable):
        torch._check_is_size(value.value)
        return NONE
    return NONE if isinstance(value, ConstantVariable) else None


@handles(torch.nn.Parameter, torch.nn.Buffer)
def parameter(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("making an nn.Parameter inside the compiled function"))


@handles(torch.tensor)
def tensor(tx: Tx, data: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    from ..variables.tensor import is_graph_argument

    if not is_graph_argument(data) or _holds_tensor(data):
        raise StepUnsupported(UnsupportedOperation("torch.tensor() of these operands"))
    return None


def _holds_tensor(vt: VariableTracker) -> bool:
    vt = vt.realize()
    items = getattr(vt, "items", None)
    return isinstance(vt, TensorVariable) or (isinstance(items, list) and any(_holds_tensor(i) for i in items))
