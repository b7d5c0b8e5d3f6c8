"""The settings behind `dynamo_nb.config`: names, defaults, aliases, environment variables, patching.

`snapshot()` is read once per compile, so that tracing never looks a setting up twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any


def _env_flag(name: str, default: bool) -> bool:
    text = os.environ.get(name)
    return default if text is None else text.strip().lower() not in ("", "0", "false", "no", "off")


def defaults() -> dict[str, Any]:
    return {
        "recompile_limit": 8,
        "accumulated_recompile_limit": 256,
        "fail_on_recompile_limit_hit": False,
        "suppress_errors": _env_flag("DYNAMO_NB_SUPPRESS_ERRORS", False),
        "verbose": _env_flag("DYNAMO_NB_VERBOSE", False),
        "dynamic_shapes": True,
        "assume_static_by_default": True,
        "automatic_dynamic_shapes": _env_flag("DYNAMO_NB_AUTOMATIC_DYNAMIC_SHAPES", True),
        "specialize_int": False,
        "specialize_float": False,
        "allow_unspec_int_on_nn_module": True,
        "inline_inbuilt_nn_modules": True,
        "capture_scalar_outputs": False,
        "capture_dynamic_output_shape_ops": False,
        "nested_graph_breaks": True,
        "max_unrolled_ops": 2000,
        "max_inline_depth": 60,
        "max_traced_instructions": 400_000,
        "max_restarts": 64,
        "reorderable_logging_functions": set(),
        "ignore_logger_methods": set(),
        "optimize_ddp": True,
        "skip_fsdp_hooks": True,
        "compiled_autograd": False,
        "error_on_recompile": False,
        "raise_on_ctx_manager_usage": True,
        "guard_nn_modules": True,
        "trace_numpy": True,
        "log_level": logging.WARNING,
        "output_code": False,
        "strict": os.environ.get("DYNAMO_NB_STRICT", ""),    # guards: their forms must agree; retrace: so must a new trace at every hit
        "enable_trace_unittest": False,
        "enable_trace_load_build_class": False,
        "suppress_break_logs": False,
        "buffer_pool_mb": 1024,      # free memory that generated code keeps for its next results; at most an eighth of the machine's
        "max_autotune": False,
        "cudagraphs": False,
        "debug_dir_root": "",
        "report_guard_failures": True,
        "error_on_nested_fx_trace": True,
        "allow_rnn": True,
        "repro_level": 0,
        "repro_after": None,
        "skip_nnmodule_hook_guards": False,
        "force_parameter_static_shapes": True,
        "force_nn_module_property_static_shapes": False,
        "install_free_tensors": False,
        "allow_ignore_mark_dynamic": False,
        "prefer_deferred_runtime_asserts_over_guards": False,
        "do_not_emit_runtime_asserts": False,
        "use_numpy_random_stream": False,
    }


ALIASES = {
    "cache_size_limit": "recompile_limit",
    "accumulated_cache_size_limit": "accumulated_recompile_limit",
    "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit",
}


class Settings:
    """One attribute a setting; unknown names raise AttributeError naming the nearest known one."""

    def __init__(self) -> None:
        object.__setattr__(self, "_values", defaults())

    @staticmethod
    def _resolve(name: str) -> str:
        return ALIASES.get(name, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[self._resolve(name)]
        except KeyError:
            raise AttributeError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        name = self._resolve(name)
        if name not in self._values:
            raise AttributeError(self._unknown(name))
        self._values[name] = value

    def _unknown(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, self._values, 1)
        return f"dynamo_nb.config has no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")

    def names(self) -> list[str]:
        return [*self._values, *ALIASES]

    def snapshot(self) -> dict[str, Any]:
        return dict(self._values)

    @contextlib.contextmanager
    def patched(self, changes: dict[str, Any]) -> Iterator[None]:
        before = {self._resolve(name): getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield
        finally:
            self._values.update(before)


settings = Settings()


def raises_internal_errors() -> bool:
    """Do errors of ours reach the user, as in tests, or is the code run without us?"""
    return bool(os.environ.get("DYNAMO_NB_RAISE_INTERNAL") or settings.strict)
