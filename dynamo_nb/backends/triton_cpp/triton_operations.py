"""Operations as Triton expressions: name, element types and operand texts in, text out.

Registers hold f16 and bf16 values as f32 (rounded after every inexact operation), b1 as int1, everything else as in memory.
`device` in the text is `triton_device`; `libdevice` is Triton's, or a NumPy form of it under the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from dynamo_nb.backends.triton_cpp.ir import DType
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint

MEMORY = {
    DType.f64: "tl.float64", DType.f32: "tl.float32", DType.f16: "tl.float16", DType.bf16: "tl.bfloat16", DType.i64: "tl.int64",
    DType.i32: "tl.int32", DType.i16: "tl.int16", DType.i8: "tl.int8", DType.u8: "tl.uint8", DType.b1: "tl.int1",
}
REGISTER = {**MEMORY, DType.f16: "tl.float32", DType.bf16: "tl.float32"}
POINTER = {
    DType.f64: "*fp64", DType.f32: "*fp32", DType.f16: "*fp16", DType.bf16: "*bf16", DType.i64: "*i64",
    DType.i32: "*i32", DType.i16: "*i16", DType.i8: "*i8", DType.u8: "*u8", DType.b1: "*u1",
}

# A rounded operand gives a rounded result, so nothing needs to be rounded again.
EXACT = frozenset("neg abs min max fmin fmax sign copysign floor ceil round trunc where fmod isnan isinf signbit lt le gt ge eq ne".split())

LIBDEVICE = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "rsqrt": "rsqrt",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "lgamma": "lgamma",
    "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "fmod": "fmod", "pow": "pow", "copysign": "copysign",
    "hypot": "hypot", "atan2": "atan2",
}
INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
IDENTITY_ON_INTEGERS = ("floor", "ceil", "round", "trunc")


def rounded(text: str, dtype: DType) -> str:
    """An f32 value rounded to the type, still f32."""
    if dtype is DType.f16:
        return f"({text}).to(tl.float16).to(tl.float32)"
    if dtype is DType.bf16:
        return f"device.round_bf16({text})"
    return text


def operation_text(name: str, dtype: DType, operands: Sequence[str], types: Sequence[DType]) -> str:
    """The value of `name` on operands (texts of registers) of these types, a register of `dtype`."""
    if name == "cast":
        return cast_text(operands[0], types[0], dtype)
    kind = types[-1]
    text = _boolean(name, operands) if kind is DType.b1 else None
    if text is None:
        text = _floating(name, operands, kind) if kind.is_float else _integer(name, operands, kind)
    if text is None:
        raise CannotPrint(f"no Triton text for {name} on {kind.value}; cast the operands to a type that ir.OPERATIONS defines it for")
    return text if name in EXACT else rounded(text, dtype)


def _boolean(name: str, x: Sequence[str]) -> str | None:
    words = {"and": "&", "or": "|", "xor": "^", "min": "&", "max": "|", "fmin": "&", "fmax": "|", "add": "|", "mul": "&", "ne": "^"}
    if name in words:
        return f"{x[0]} {words[name]} {x[1]}"
    if name == "where":
        return f"tl.where({', '.join(x)})"
    if name == "not":
        return f"~{x[0]}"
    if name in INFIX and name != "sub":
        return f"{x[0]}.to(tl.int32) {INFIX[name]} {x[1]}.to(tl.int32)"
    if name in ("isnan", "isinf", "signbit"):
        return f"{x[0]} ^ {x[0]}"
    return x[0] if name in ("sign", "abs", *IDENTITY_ON_INTEGERS) else None


def _common(name: str, x: Sequence[str], kind: DType) -> str | None:
    if name in INFIX:
        return f"{x[0]} {INFIX[name]} {x[1]}"
    if name == "where":
        return f"tl.where({', '.join(x)})"
    if name == "neg":
        return f"-{x[0]}"
    if name == "abs":
        return f"tl.abs({x[0]})"
    if name == "sign":
        register = REGISTER[kind]
        return f"({x[0]} > 0).to({register}) - ({x[0]} < 0).to({register})"
    return None


def _floating(name: str, x: Sequence[str], kind: DType) -> str | None:
    if name in LIBDEVICE:
        return f"libdevice.{LIBDEVICE[name]}({', '.join(x)})"
    special: dict[str, Callable[[], str]] = {
        "div": lambda: f"device.divide({x[0]}, {x[1]})",
        "truncdiv": lambda: f"libdevice.trunc(device.divide({x[0]}, {x[1]}))",
        "floordiv": lambda: f"device.floordiv({x[0]}, {x[1]})",
        "mod": lambda: f"device.remainder({x[0]}, {x[1]})",
        "min": lambda: f"tl.minimum({x[0]}, {x[1]}, propagate_nan=tl.PropagateNan.ALL)",
        "max": lambda: f"tl.maximum({x[0]}, {x[1]}, propagate_nan=tl.PropagateNan.ALL)",
        "fmin": lambda: f"tl.minimum({x[0]}, {x[1]})",
        "fmax": lambda: f"tl.maximum({x[0]}, {x[1]})",
        "sqrt": lambda: f"libdevice.sqrt({x[0]})" if kind is DType.f64 else f"tl.sqrt_rn({x[0]})",
        "sigmoid": lambda: f"device.sigmoid({x[0]})",
        "isnan": lambda: f"{x[0]} != {x[0]}",
        "isinf": lambda: f'tl.abs({x[0]}) == float("inf")',
        "signbit": lambda: f"{x[0]}.to({'tl.int64' if kind is DType.f64 else 'tl.int32'}, bitcast=True) < 0",
    }
    return special[name]() if name in special else _common(name, x, kind)


def _integer(name: str, x: Sequence[str], kind: DType) -> str | None:
    unsigned, bits = kind is DType.u8, 8 * kind.itemsize
    if name in BITWISE:
        return f"{x[0]} {BITWISE[name]} {x[1]}"
    if name in IDENTITY_ON_INTEGERS:
        return x[0]
    special: dict[str, Callable[[], str]] = {
        "not": lambda: f"~{x[0]}",
        "truncdiv": lambda: f"{x[0]} // {x[1]}",
        "fmod": lambda: f"{x[0]} % {x[1]}",
        "floordiv": lambda: f"{x[0]} // {x[1]}" if unsigned else f"device.index_floordiv({x[0]}, {x[1]})",
        "mod": lambda: f"{x[0]} % {x[1]}" if unsigned else f"device.index_mod({x[0]}, {x[1]})",
        "min": lambda: f"tl.minimum({x[0]}, {x[1]})", "fmin": lambda: f"tl.minimum({x[0]}, {x[1]})",
        "max": lambda: f"tl.maximum({x[0]}, {x[1]})", "fmax": lambda: f"tl.maximum({x[0]}, {x[1]})",
        "pow": lambda: f"device.integer_power({x[0]}, {x[1]})",
        "shl": lambda: f"device.shift_left({x[0]}, {x[1]}, {bits})",
        "shr": lambda: f"device.shift_right({x[0]}, {x[1]}, {bits if unsigned else bits - 1})",
        "isnan": lambda: f"{x[0]} != {x[0]}", "isinf": lambda: f"{x[0]} != {x[0]}", "signbit": lambda: f"{x[0]} < 0",
    }
    return special[name]() if name in special else _common(name, x, kind)


def cast_text(x: str, source: DType, target: DType) -> str:
    if target is source:
        return x
    if target is DType.b1:
        return f"{x} != 0"
    if target.is_float:
        if REGISTER[source] != REGISTER[target]:
            x = f"{x}.to({REGISTER[target]})"
        return rounded(x, target)
    if source.is_float and target.itemsize < 4:
        # Narrow integers keep the low bits of a wide conversion, as torch's own conversions do.
        x = f"{x}.to({'tl.int64' if target is DType.u8 else 'tl.int32'})"
    return f"{x}.to({MEMORY[target]})"


def constant_text(value: bool | int | float, dtype: DType, shape: str) -> str:
    """A constant of the type as a register of the shape (`(1, 1)`: it broadcasts)."""
    if not dtype.is_float:
        whole = int(bool(value)) if dtype is DType.b1 else int(value)
        if dtype.is_int:
            bits = 8 * dtype.itemsize
            whole &= (1 << bits) - 1
            whole -= (1 << bits) if dtype is not DType.u8 and whole >> (bits - 1) else 0
        return f"tl.full({shape}, {whole}, {MEMORY[dtype]})"
    number = float(torch.tensor(float(value), dtype=torch.float64).to(dtype.torch).double())
    literal = repr(number) if math.isfinite(number) else f'float("{number}")'
    if math.copysign(1.0, number) < 0 and number == 0.0:
        return f"-tl.full({shape}, 0.0, {REGISTER[dtype]})"      # tl.full drops the sign of zero
    return f"tl.full({shape}, {literal}, {REGISTER[dtype]})"


def widened(text: str, dtype: DType) -> str:
    """What a load gives, as a register."""
    if dtype is DType.bf16:
        return f"device.widen_bf16({text})"
    return f"{text}.to(tl.float32)" if dtype is DType.f16 else text


def narrowed(text: str, dtype: DType) -> str:
    """A register as a store takes it."""
    if dtype is DType.bf16:
        return f"device.narrow_bf16({text})"
    return f"{text}.to(tl.float16)" if dtype is DType.f16 else text
