"""A packed module's kernel with its operands, outside of a model."""

from collections.abc import Callable, Mapping

import torch
from safetensors import SafetensorError, safe_open
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.utils.torch_utils import set_default_torch_dtype

from prepack_vllm.errors import Malformed
from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts import TORCH_DTYPES, layout_of
from prepack_vllm.layouts.plain import PlainBf16, PlainBf16Conv1d
from prepack_vllm.manifest import Manifest, PackedModule

Product = Callable[[torch.Tensor], torch.Tensor]


def read_parts(manifest: Manifest, module: PackedModule) -> dict[str, torch.Tensor]:
    parts = {}
    for name, entry in module.parts.items():
        path = manifest.folder / entry.file
        try:
            with safe_open(path, framework="pt") as file:
                parts[name] = file.get_tensor(entry.name)
        except SafetensorError as error:
            raise Malformed(str(path), str(error)) from error
    return parts


def _as_vllm_runs_it(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """vLLM loads such weights itself, and packs them for an op that it chooses."""
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
    dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    return lambda x: layer.cpu_linear(x, layer.weight, layer.bias)


def bind(module: PackedModule, geometry: Geometry, parts: Mapping[str, torch.Tensor]) -> Product:
    """x · Wᵀ + bias as the model's layer computes it. x is in the order of the model's channels."""
    layout = layout_of(module)
    dtype = TORCH_DTYPES[geometry.activation_dtype]
    shaped = dict(parts)
    for part in layout.parts_of(geometry):
        shaped[part.name] = parts[part.name].reshape(part.shape)
    bias = parts.get("bias")
    if layout.kernel in (PlainBf16, PlainBf16Conv1d):
        weight = shaped["weight"]
        if layout.kernel is PlainBf16Conv1d:
            weight = weight.t().contiguous()
        return _as_vllm_runs_it(weight, None if bias is None else bias.to(dtype))
    # As vLLM loads a model: what a kernel makes without naming a dtype gets this one.
    with set_default_torch_dtype(dtype):
        kernel = layout.kernel(geometry, shaped)
    if bias is not None:
        bias = bias.to(torch.float32 if kernel.f32_bias else dtype)
    order = parts.get("input_order")

    def product(x: torch.Tensor) -> torch.Tensor:
        return kernel(x if order is None else x.index_select(1, order), bias)

    return product
