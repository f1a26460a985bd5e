"""How the parts of a module become the parameters of a vLLM layer.

Parameters have the kernel's shape from the start. vLLM's own parameter classes cut the stored parts
for tensor parallelism and put q, k and v side by side, because every packed form can be cut along
both kinds of channels; here they are told where.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.parameter import (
    BasevLLMParameter,
    PackedColumnParameter,
    PackedvLLMParameter,
    RowvLLMParameter,
)

from prepack_vllm.errors import Malformed
from prepack_vllm.layouts import TORCH_DTYPES
from prepack_vllm.parts import Along, Part

ShardId = str | int | tuple[int, ...] | None

# A parameter that holds all of a stored tensor is that tensor, mapped from the file, unless this is
# set: its pages are shared between processes, and the system can drop and read them again.
COPY_VARIABLE = "PREPACK_VLLM_COPY"


# Whose tensors are mapped, or at least nobody else's. Others may use their buffers again.
_OWN_MEMORY = ("auto", "hf", "safetensors")


def may_keep_tensors() -> bool:
    if os.environ.get(COPY_VARIABLE, "0") not in ("", "0"):
        return False
    config = get_current_vllm_config_or_none()
    return config is None or config.load_config.load_format in _OWN_MEMORY


def as_in_file(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix as the file has it, which the model may have transposed.

    vLLM's GPT-2 transposes each `weight` of c_attn, c_proj and c_fc before it is loaded, because
    transformers stores plain ones (Conv1D) with their inputs first. Packed ones lie as their layout
    says. A matrix comes from a file row by row, so one that lies column by column was transposed.
    """
    transposed = tensor.dim() == 2 and not tensor.is_contiguous() and tensor.t().is_contiguous()
    return tensor.t() if transposed else tensor


class PartLoader:
    """Loads one part of one layer, and knows what of it has come."""

    def __init__(self, module: str, part: Part, load: Callable[..., None]):
        self.module = module
        self.part = part
        self.load = load
        self.may_keep = may_keep_tensors()
        self.loaded: set[ShardId] = set()

    @property
    def name(self) -> str:
        return self.part.name

    def __call__(
        self, parameter: torch.nn.Parameter, stored: torch.Tensor, shard: ShardId = None
    ) -> None:
        self._check_dtype(stored)
        stored = as_in_file(stored)
        if self.part.stored_shape is not None:
            stored = self._as_cut(stored)
        self.loaded.add(shard)
        if shard is None and stored.shape == parameter.shape and self.may_keep:
            parameter.data = stored
        elif shard is None:
            self.load(parameter, stored)
        else:
            self.load(parameter, stored, shard)

    def _check_dtype(self, stored: torch.Tensor) -> None:
        expected = TORCH_DTYPES[self.part.dtype]
        if stored.dtype != expected:  # vLLM would convert it silently
            raise Malformed(
                self.module,
                f"part {self.part.name} is of another dtype",
                found=stored.dtype,
                expected=expected,
            )

    def _as_cut(self, stored: torch.Tensor) -> torch.Tensor:
        """In blocks of output channels and of input channels, so that it can be cut along both."""
        by_outputs, by_inputs = self.part.by_outputs, self.part.by_inputs
        assert isinstance(by_outputs, Along) and isinstance(by_inputs, Along)
        n, k = stored.shape
        return stored.view(n // by_outputs.channels, k // by_inputs.channels, -1)


class BiasLoader:
    """Loads the bias, which vLLM makes in the dtype of the activations, in that of the kernel."""

    name = "bias"

    def __init__(self, f32: bool, load: Callable[..., None]):
        self.f32 = f32
        self.load = load
        self.loaded: set[ShardId] = set()

    def __call__(
        self, parameter: torch.nn.Parameter, stored: torch.Tensor, shard: ShardId = None
    ) -> None:
        if self.f32 and parameter.dtype != torch.float32:
            parameter.data = torch.empty(parameter.shape, dtype=torch.float32)
        self.loaded.add(shard)
        if shard is None:
            self.load(parameter, stored)
        else:
            self.load(parameter, stored, shard)


def index_of(shard: str | int) -> int:
    """Which of the modules in a fused layer it is."""
    return {"q": 0, "k": 1, "v": 2}[shard] if isinstance(shard, str) else shard


def missing_modules(loaded: set[ShardId], names: list[str]) -> list[str]:
    """Those of the modules in a layer of which a part has not come."""
    if None in loaded:
        return []
    indices: set[int] = set()
    for shard in loaded:
        for one in shard if isinstance(shard, tuple) else (shard,):
            assert one is not None
            indices.add(index_of(one))
    return [name for index, name in enumerate(names) if index not in indices]


def make_parameter(part: Part, loader: PartLoader) -> torch.nn.Parameter:
    """The parameter for a rank's share of a part."""
    arguments: dict[str, Any] = {
        # Memory is used only where it is written, so never where a file is mapped instead.
        "data": torch.empty(part.shape, dtype=TORCH_DTYPES[part.dtype]),
        "weight_loader": loader,
    }
    by_outputs, by_inputs = part.by_outputs, part.by_inputs
    if isinstance(by_inputs, Along):
        arguments["input_dim"] = by_inputs.axis
    if isinstance(by_outputs, Along):
        arguments["output_dim"] = arguments["packed_dim"] = by_outputs.axis
        arguments["packed_factor"] = by_outputs.channels
        cls = PackedvLLMParameter if isinstance(by_inputs, Along) else PackedColumnParameter
        return cls(**arguments)
    return (RowvLLMParameter if isinstance(by_inputs, Along) else BasevLLMParameter)(**arguments)


def why_not_pieces(parts: list[Part], sizes: list[int]) -> str | None:
    """Why the parts cannot be cut into pieces of so many output channels; None: they can."""
    for part in parts:
        if not isinstance(part.by_outputs, Along):
            continue
        unit = part.by_outputs.unit
        for size in sizes:
            if size % unit != 0:
                return f"{size} output channels, but {part.name} can be cut at multiples of {unit}"
    return None


def why_not_inputs(parts: list[Part], k: int) -> str | None:
    """Why the parts cannot be cut into pieces of so many input channels; None: they can."""
    for part in parts:
        if part.by_inputs is None:
            continue
        if not isinstance(part.by_inputs, Along):
            return f"{k} input channels, but {part.name} cannot be cut along these"
        if k % part.by_inputs.unit != 0:
            unit = part.by_inputs.unit
            return f"{k} input channels, but {part.name} can be cut at multiples of {unit}"
    return None
