"""vllm-cpu/fp8-vnni and vllm-cpu/bf16-vnni: two input channels side by side."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import (
    Weights,
    bf16_to_f64,
    e4m3_to_f64,
    f64,
    indices,
    raw,
    read_elements,
)
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel, Parts, has_op
from prepack_vllm.layouts.layout import Layout, Packer, Scheme
from prepack_vllm.layouts.vllm_packers import pack_vnni
from prepack_vllm.parts import WHOLE, Along, Part, channel_scale, input_order


def pairs_element(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    return (i // 32) * 32 * k + (j // 2) * 64 + (i % 32) * 2 + j % 2


def _pairs(g: Geometry, dtype: str) -> Part:
    """Blocks of 32 output channels, in which two input channels lie side by side."""
    shape = (g.n // 32, g.k // 2, 64)
    return Part("weight", dtype, shape, Along(0, 32, 32), Along(1, 2, 32), stored_shape=(g.n, g.k))


def _parts_of_fp8_vnni(g: Geometry) -> list[Part]:
    weight = _pairs(g, "F8_E4M3")
    if g.granularity == "channel":
        return [weight, channel_scale(g, "F32"), *input_order(g)]
    columns = -(-g.k // 128)
    by_inputs = Along(1, 128, 128) if columns > 1 else WHOLE
    if g.granularity == "tensor":
        scale = Part("weight_scale_inv", "F32", (1, columns), WHOLE, by_inputs)
    else:
        rows = -(-g.n // g.scale_rows)
        by_outputs = Along(0, g.scale_rows, g.scale_rows)
        scale = Part("weight_scale_inv", "F32", (rows, columns), by_outputs, by_inputs)
    return [weight, scale, *input_order(g)]


def _parts_of_bf16_vnni(g: Geometry) -> list[Part]:
    return [_pairs(g, "BF16"), *input_order(g)]


class Fp8Vnni(Kernel):
    ops = ("_C::fp8_scaled_mm_cpu",)
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        self.per_channel = geometry.granularity == "channel"
        if geometry.granularity == "block":
            self.block = [geometry.scale_rows, 128]
        else:
            self.block = [-(-geometry.n // 32) * 32, 128]
        columns = -(-geometry.k // 128)
        if self.per_channel:  # vLLM loads with the default dtype of the activations
            self.scales = torch.ones(1, columns, dtype=torch.float32)
        else:
            self.scales = parts["weight_scale_inv"]
        self.weight = parts["weight"].view(geometry.n, geometry.k)

    def exact_weights(self) -> torch.Tensor | None:
        """The op takes codes for zeros that stand for very small numbers."""
        if self.per_channel:
            return None
        n, k = self.geometry.n, self.geometry.k
        codes = unpack_vnni(self.weight).float()
        rows, columns = self.block
        scales = self.scales.repeat_interleave(rows, 0)[:n].repeat_interleave(columns, 1)[:, :k]
        return codes * scales

    def _multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.fp8_scaled_mm_cpu(
            x, self.weight, self.scales, self.block, bias, x.dtype, True
        )

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if not self.per_channel:
            return self._multiply(x, bias)
        # The op has no scales per channel. Rounded as vLLM 0.33 does it, which has a kernel for them.
        y = (self._multiply(x, None).float() * self.parts["weight_scale"]).to(x.dtype)
        return y if bias is None else y + bias.to(x.dtype)


def unpack_vnni(weight: torch.Tensor) -> torch.Tensor:
    """The plain weight [N, K] of one in blocks of 32 output channels by two input channels."""
    n, k = weight.shape
    return weight.view(n // 32, k // 2, 32, 2).transpose(1, 2).reshape(n, k)


class Bf16Vnni(Kernel):
    """A library without the op gets plain weights, a copy."""

    ops = ("_C::weight_packed_linear",)
    runs_without_ops = True
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        weight = parts["weight"].view(geometry.n, geometry.k)
        self.in_blocks = has_op(self.ops[0])
        self.weight = weight if self.in_blocks else unpack_vnni(weight)

    def holds_weights_itself(self) -> bool:
        return not self.in_blocks

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if not self.in_blocks:
            bias = None if bias is None else bias.to(x.dtype)
            return torch.nn.functional.linear(x, self.weight, bias)
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        torch.ops._C.weight_packed_linear(y, x, self.weight, bias, True)
        return y


def _fp8_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = pairs_element(g.n, g.k)
    values = e4m3_to_f64(read_elements(raw(parts["weight"]), place, np.uint8))
    if g.granularity == "channel":
        return values * f64(parts["weight_scale"])[:, None]
    scales = np.repeat(f64(parts["weight_scale_inv"]), g.scale_rows, axis=0)[: g.n]
    return values * np.repeat(scales, 128, axis=1)[:, : g.k]


def _bf16_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = pairs_element(g.n, g.k)
    return bf16_to_f64(read_elements(raw(parts["weight"]), place, np.uint16))


LAYOUTS = (
    Layout(
        "vllm-cpu/fp8-vnni", 1, "298fccdddd426fa5a5fbe65912678391", _parts_of_fp8_vnni, Fp8Vnni,
        weights=_fp8_vnni,
        schemes=(
            Scheme("f8e4m3", "block"),
            Scheme("f8e4m3", "channel"),
            Scheme("f8e4m3", "tensor"),
        ),
        packer=Packer(pack_vnni, "_C::convert_weight_packed"),
    ),
    Layout(
        "vllm-cpu/bf16-vnni", 1, "6284404cce48c1f3f2edcfb0f4f79d5a", _parts_of_bf16_vnni, Bf16Vnni,
        weights=_bf16_vnni,
        schemes=(Scheme("bf16", "tensor"),),
        packer=Packer(pack_vnni, "_C::convert_weight_packed"),
    ),
)  # fmt: skip
