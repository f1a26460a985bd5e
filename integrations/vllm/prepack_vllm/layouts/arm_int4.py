"""vllm-arm/int4-w4a8: 4 bits, in records of 8 output channels that hold scales and bias."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import Weights, bf16_to_f64, indices, per_weight, raw, read_nibbles
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel, Parts
from prepack_vllm.layouts.layout import DYNAMIC, Layout, PackedParts, Packer, Probe, Scheme
from prepack_vllm.parts import NEVER, Along, Part, input_order


def arm_int4_nibble(n: int, k: int, group_size: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    groups = k // group_size
    group = -(-group_size // 32) * 128 + (16 if groups > 1 else 0)
    record = groups * group + (64 if groups > 1 else 96)
    in_group = j % group_size
    byte = (i // 8) * record + j // group_size * group + in_group // 32 * 128
    byte = byte + in_group % 16 // 8 * 64 + (i % 8) * 8 + in_group % 8
    return 2 * byte + in_group % 32 // 16


def _parts_of_arm_int4_w4a8(g: Geometry) -> list[Part]:
    """The weight holds scales and bias, too, for every 8 output channels."""
    if g.groups == 1:
        record = -(-g.k // 32) * 128 + 96
    else:
        record = g.groups * (4 * g.group_size + 16) + 64
    weight = Part("weight", "U8", (-(-g.n // 8), record), Along(0, 8, 8), NEVER)
    return [weight, *input_order(g)]


class ArmInt4W4A8(Kernel):
    """KleidiAI through torch, called as vLLM's own Dynamic4bitLinearKernel calls it."""

    ops = ("aten::_dyn_quant_matmul_4bit",)
    needs_kleidiai = True
    weight_holds_bias = True
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        # What the op takes as it is; other activations are widened.
        own = ("BF16", "F32") if geometry.groups == 1 else ("F32",)
        self.widens = geometry.activation_dtype not in own

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        g = self.geometry
        y = torch.ops.aten._dyn_quant_matmul_4bit(
            x.float() if self.widens else x, self.parts["weight"], g.group_size, g.k, g.n
        )
        return y.to(x.dtype)


def _arm_int4(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = arm_int4_nibble(g.n, g.k, g.group_size)
    codes = read_nibbles(raw(parts["weight"]), place).astype(np.int64)
    records = raw(parts["weight"]).reshape(-(-g.n // 8), -1)
    if g.groups == 1:
        held = records[:, -64:-32].copy().view(np.float32).astype(np.float64) * 16
        scales = held.reshape(-1, 1)
    else:
        groups = records[:, :-64].reshape(len(records), g.groups, -1)
        held = bf16_to_f64(groups[:, :, -16:].copy().view(np.uint16))
        scales = held.transpose(0, 2, 1).reshape(-1, g.groups)
    return np.where(codes > 7, codes - 16, codes) * per_weight(scales[: g.n], g)


def _pack_arm_int4(probe: Probe) -> PackedParts:
    codes = torch.from_numpy(probe.codes[:, 0::2] | probe.codes[:, 1::2] << 4)
    scales = torch.from_numpy(probe.scales).to(torch.bfloat16)
    geometry = probe.geometry
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
        codes, scales, None, geometry.group_size, geometry.k, geometry.n
    )
    return {"weight": packed}


LAYOUTS = (
    Layout(
        "vllm-arm/int4-w4a8", 1, "72c83fe3c9efc1bfde6851d9eaf59b6b", _parts_of_arm_int4_w4a8,
        ArmInt4W4A8,
        weights=_arm_int4,
        schemes=(Scheme("u4", "group", activations=DYNAMIC),),
        activation_dtypes=("BF16", "F16", "F32"),
        packer=Packer(_pack_arm_int4, "aten::_dyn_quant_pack_4bit_weight", on_arm=True),
    ),
)  # fmt: skip
