"""vllm-cpu/int4-w4a8: 4 bits, in blocks of 32 output channels that end with sums."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import Weights, f64, indices, per_weight, raw, read_nibbles
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts.layout import DYNAMIC, Layout, PackedParts, Packer, Probe, Scheme
from prepack_vllm.layouts.vllm_packers import stored_layer, vllm_kernel
from prepack_vllm.parts import Along, Part, by_group, input_order


def int4_w4a8_nibble(n: int, k: int, block: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    begin = ((i // 32) * (k // block) + j // block) * (16 * block + 128)
    byte = begin + (j % block // 4) * 64 + (i % 32 // 16) * 32 + (i % 8) * 4 + j % 4
    return 2 * byte + (i // 8) % 2


def _parts_of_int4_w4a8(g: Geometry) -> list[Part]:
    b = g.block_k
    by_outputs = Along(0, 32, 32)
    scales = (g.n // 32, g.groups, 32)
    return [
        Part(
            "weight", "U8", (g.n // 32, g.k // b, 16 * b + 128), by_outputs,
            Along(1, b, math.lcm(b, 32)),
        ),
        Part("weight_scale", "F32", scales, by_outputs, by_group(g, 1)),
        Part("weight_zero_point", "I8", scales, by_outputs, by_group(g, 1)),
        *input_order(g),
    ]  # fmt: skip


class Int4W4A8(Kernel):
    ops = ("_C::int4_scaled_mm_cpu",)
    f32_bias = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.int4_scaled_mm_cpu(
            x,
            self.parts["weight"],
            self.parts["weight_zero_point"],
            self.parts["weight_scale"],
            bias,
        )


def _int4_w4a8(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = int4_w4a8_nibble(g.n, g.k, g.block_k)
    codes = read_nibbles(raw(parts["weight"]), place).astype(np.int64)

    def rows(name: str) -> Weights:
        blocked = f64(parts[name]).reshape(g.n // 32, g.groups, 32)
        return blocked.transpose(0, 2, 1).reshape(g.n, g.groups)

    zeros, scales = rows("weight_zero_point"), rows("weight_scale")
    return (codes - per_weight(zeros, g)) * per_weight(scales, g)


def _pack_int4_w4a8(probe: Probe) -> PackedParts:
    layer = stored_layer(probe)
    for name in ("w", "s", "z"):
        parameter = getattr(layer, name)
        if parameter is not None:
            parameter.data = parameter.data.t().contiguous()
    vllm_kernel(probe)._process_gptq_weights_w4a8(layer)
    return {
        "weight": layer.w.data,
        "weight_scale": layer.s.data,
        "weight_zero_point": layer.z.data,
    }


LAYOUTS = (
    Layout(
        "vllm-cpu/int4-w4a8", 1, "6d1a2c81871574e44d2a337775a42d65", _parts_of_int4_w4a8, Int4W4A8,
        weights=_int4_w4a8,
        schemes=(
            Scheme("u4", "group", activations=DYNAMIC),
            Scheme("u4", "group", symmetric=False, activations=DYNAMIC),
        ),
        activation_dtypes=("BF16", "F16"),
        packer=Packer(_pack_int4_w4a8, "_C::convert_weight_packed_scale_zp"),
    ),
)  # fmt: skip
