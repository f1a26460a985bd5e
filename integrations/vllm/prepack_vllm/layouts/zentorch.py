"""zentorch/woq, zentorch/da8w4 and zentorch/int8."""

from collections.abc import Mapping

import numpy as np
import torch

from prepack_vllm.closed_forms import (
    Weights,
    f64,
    int8_rows,
    per_weight,
    raw,
    read_nibbles,
    row_nibble,
)
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts.layout import (
    DYNAMIC,
    INT8_SCHEMES,
    Layout,
    PackedParts,
    Packer,
    Probe,
    Scheme,
)
from prepack_vllm.parts import Along, Part, by_group, channel_scale, grouped_scale, input_order


def _parts_of_zentorch_woq(g: Geometry) -> list[Part]:
    weight = Part("weight", "I32", (g.n, g.k // 8), Along(0), Along(1, 8, 8))
    parts = [weight, grouped_scale(g, "BF16")]
    if not g.symmetric:
        zeros = Part("weight_zero_point", "I8", (g.groups, g.n), Along(1), by_group(g, 0))
        parts.append(zeros)
    return parts + input_order(g)


def _parts_of_zentorch_da8w4(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k // 2), Along(0), Along(1, 2, 8))
    return [weight, grouped_scale(g, "BF16"), *input_order(g)]


def _parts_of_zentorch_int8(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k), Along(0), Along(1))
    return [weight, channel_scale(g, "BF16"), *input_order(g)]


class ZentorchWoq(Kernel):
    ops = ("zentorch::zentorch_woq_linear",)
    needs_zentorch = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.zentorch.zentorch_woq_linear(
            x,
            self.parts["weight"].t(),
            self.parts["weight_scale"],
            self.parts.get("weight_zero_point"),
            bias,
        )


class ZentorchDynamic(Kernel):
    """W4A8 and W8A8: the op tells them apart by the shape of the weight."""

    ops = ("zentorch::zentorch_dynamic_qlinear",)
    needs_zentorch = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.zentorch.zentorch_dynamic_qlinear(
            x, self.parts["weight"], self.parts["weight_scale"], bias
        )


def _zentorch_4_bits(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = read_nibbles(raw(parts["weight"]), row_nibble(g.n, g.k)).astype(np.int64)
    zeros = parts.get("weight_zero_point")
    if zeros is None:
        differences = np.where(codes > 7, codes - 16, codes).astype(np.float64)
    else:
        differences = codes - per_weight(f64(zeros).T, g)
    return differences * per_weight(f64(parts["weight_scale"]).T, g)


def _pack_zentorch_4_bits(probe: Probe) -> PackedParts:
    offset = 8 if probe.geometry.symmetric else 0
    codes = torch.from_numpy(probe.codes.astype(np.int8) - np.int8(offset))
    weight = torch.ops.zentorch.zentorch_woq_repack_weight(codes)
    if probe.geometry.activations is not None:
        weight = weight.view(torch.int8)
    scales = torch.from_numpy(probe.scales).to(torch.bfloat16)
    parts = {"weight": weight, "weight_scale": scales.t().contiguous()}
    if not probe.geometry.symmetric:
        zeros = torch.from_numpy(probe.zero_points.astype(np.int8))
        parts["weight_zero_point"] = zeros.t().contiguous()
    return parts


LAYOUTS = (
    Layout(
        "zentorch/woq", 1, "9289e960e382bd625dbd2e000b4eeddb", _parts_of_zentorch_woq, ZentorchWoq,
        weights=_zentorch_4_bits,
        schemes=(
            Scheme("u4", "group"),
            Scheme("u4", "group", symmetric=False),
        ),
        packer=Packer(_pack_zentorch_4_bits, "zentorch::zentorch_woq_repack_weight"),
    ),
    Layout(
        "zentorch/da8w4", 1, "b6de090e2638673fefada29e5a3745da", _parts_of_zentorch_da8w4,
        ZentorchDynamic,
        weights=_zentorch_4_bits,
        schemes=(Scheme("u4", "group", activations=DYNAMIC),),
        packer=Packer(_pack_zentorch_4_bits, "zentorch::zentorch_woq_repack_weight"),
    ),
    Layout(
        "zentorch/int8", 1, "9655458f2cb835e1864cc8fc146481a5", _parts_of_zentorch_int8,
        ZentorchDynamic,
        weights=int8_rows,
        schemes=INT8_SCHEMES,
    ),
)  # fmt: skip
