"""prepack: repacks quantized LLM checkpoints for CPU kernels, from Python.

    plan = prepack.plan("Llama-3-8B-AWQ", target="vllm-cpu")
    prepack.convert("Llama-3-8B-AWQ", "packed", target="vllm-cpu", progress=True)
    prepack.verify("packed").raise_if_bad()
    weight = prepack.open("packed")["model.layers.0.mlp.up_proj"].parts["weight"].numpy()

docs/python.md describes it. What needs numpy and safetensors (`open`, `arrays`) imports them when it
is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

from prepack.commands import (
    check,
    check_part,
    convert,
    diff,
    doctor,
    inspect,
    inspect_at,
    inspect_find,
    inspect_layout,
    inspect_values,
    merge,
    plan,
    targets,
    tune,
    verify,
    verify_part,
)
from prepack.errors import (
    CancelledError,
    CheckFailedError,
    CrashedError,
    Error,
    FolderError,
    MalformedError,
    SystemFailedError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from prepack.record import Page
from prepack.results import Progress
from prepack.tool import tool_path

if TYPE_CHECKING:
    from prepack.module_arrays import Arrays, arrays
    from prepack.folder import Folder, Hub, Layout, Module, Source
    from prepack.folder import open_folder as open
    from prepack.part import Part

# Name → module that it is in, and its name there.
_LATER = {
    "Arrays": ("prepack.module_arrays", "Arrays"),
    "arrays": ("prepack.module_arrays", "arrays"),
    "Folder": ("prepack.folder", "Folder"),
    "Hub": ("prepack.folder", "Hub"),
    "Layout": ("prepack.folder", "Layout"),
    "Module": ("prepack.folder", "Module"),
    "Part": ("prepack.part", "Part"),
    "Source": ("prepack.folder", "Source"),
    "open": ("prepack.folder", "open_folder"),
}

__all__ = [
    "Arrays", "CancelledError", "CheckFailedError", "CrashedError", "Error", "Folder", "FolderError",
    "Hub", "Layout", "MalformedError", "Module", "Page", "Part", "Progress", "Source", "SystemFailedError",
    "UnavailableError", "UnsupportedError", "UsageError", "arrays", "check", "check_part", "convert", "diff", "doctor",
    "inspect", "inspect_at", "inspect_find", "inspect_layout", "inspect_values", "merge", "open",
    "plan", "targets", "tool_path", "tune", "verify", "verify_part",
]


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'prepack' has no attribute {name!r}")
    module, attribute = _LATER[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value
