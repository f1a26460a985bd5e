"""8 bits: vllm-cpu/int8-vnni, and the plain bytes of int8-plain."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import Weights, f64, indices, int8_rows, raw, read_elements
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel, Parts
from prepack_vllm.layouts.layout import DYNAMIC, INT8_SCHEMES, Layout, Packer, Scheme
from prepack_vllm.layouts.vllm_packers import pack_vnni
from prepack_vllm.manifest import Activations
from prepack_vllm.parts import NEVER, WHOLE, Along, Part, channel_scale, input_order


def int8_vnni_byte(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    return (i // 32) * 32 * (k + 4) + (j // 4) * 128 + (i % 32) * 4 + j % 4


def _parts_of_int8_vnni(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k + 4), Along(0, 1, 32), NEVER)
    return [weight, channel_scale(g, "F32"), *input_order(g)]


def _parts_of_int8_plain(g: Geometry) -> list[Part]:
    activations = g.activations
    assert activations is not None
    parts = [Part("weight", "I8", (g.n, g.k), Along(0), Along(1)), channel_scale(g, "F32")]
    if activations.dynamic or not activations.symmetric:
        parts.append(Part("azp_adj", "F32", (g.n,), Along(0), NEVER))
    if not activations.dynamic:
        parts.append(Part("input_scale", "F32", (1,), WHOLE, WHOLE))
        if not activations.symmetric:
            parts.append(Part("input_zero_point", "I32", (1,), WHOLE, WHOLE))
    return parts + input_order(g)


def _parts_of_arm_int8_plain(g: Geometry) -> list[Part]:
    """The quantizer takes 16 input channels at a time."""
    weight, *others = _parts_of_int8_plain(g)
    return [dataclasses.replace(weight, by_inputs=Along(1, 1, 16)), *others]


class Int8Vnni(Kernel):
    ops = ("_C::int8_scaled_mm_with_quant",)
    f32_bias = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.int8_scaled_mm_with_quant(
            x, self.parts["weight"], self.parts["weight_scale"], bias, x.dtype, True
        )


_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class Int8Plain(Kernel):
    """oneDNN reorders the weights for the CPU when the handler is made: no bytes for that exist."""

    ops = ("_C::create_onednn_scaled_mm_handler", "_C::onednn_scaled_mm")

    def __init__(self, geometry: Geometry, parts: Parts):
        from vllm import _custom_ops

        super().__init__(geometry, parts)
        assert geometry.activations is not None
        self.symmetric = geometry.activations.symmetric
        self.dynamic = geometry.activations.dynamic
        self._ops = _custom_ops
        # The handler keeps a pointer to the scales: `parts` must hold them as long as it lives.
        self.handler = _custom_ops.create_onednn_scaled_mm(
            parts["weight"].t(),
            parts["weight_scale"],
            getattr(torch, _TORCH_NAMES[geometry.activation_dtype]),
            self.dynamic,
            not self.symmetric,
            32,
        )

    def holds_weights_itself(self) -> bool:
        return True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        q, scale, zero_point = self._ops.onednn_scaled_int8_quant(
            x, self.parts.get("input_scale"), self.parts.get("input_zero_point"), self.symmetric
        )
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        self._ops.onednn_scaled_mm(
            self.handler, q, y, scale, zero_point, self.parts.get("azp_adj"), bias
        )
        return y


class ArmInt8Plain(Int8Plain):
    cuts_fractions = True


def _int8_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = read_elements(raw(parts["weight"]), int8_vnni_byte(g.n, g.k), np.int8)
    return codes.astype(np.float64) * f64(parts["weight_scale"])[:, None]


_PLAIN_SCHEMES = (
    *(Scheme("s8", "channel", activations=activations) for activations in (
        DYNAMIC,
        Activations("int", symmetric=False, dynamic=True),
        Activations("int", symmetric=True, dynamic=False),
        Activations("int", symmetric=False, dynamic=False),
    )),
    Scheme("s8", "tensor", activations=DYNAMIC),
)  # fmt: skip


LAYOUTS = (
    Layout(
        "vllm-cpu/int8-vnni", 1, "72ce775d7b6248b533a9a4c4fa27bf22", _parts_of_int8_vnni, Int8Vnni,
        weights=_int8_vnni,
        schemes=INT8_SCHEMES,
        packer=Packer(pack_vnni, "_C::convert_weight_packed"),
    ),
    Layout(
        "vllm-cpu/int8-plain", 1, "8b8ec7cb48ef05e1015520d93b71449d", _parts_of_int8_plain,
        Int8Plain,
        weights=int8_rows,
        schemes=_PLAIN_SCHEMES,
        activation_dtypes=("BF16", "F16", "F32"),
    ),
    Layout(
        "vllm-arm/int8-plain", 1, "8b8ec7cb48ef05e1015520d93b71449d", _parts_of_arm_int8_plain,
        ArmInt8Plain,
        weights=int8_rows,
        schemes=_PLAIN_SCHEMES,
        activation_dtypes=("BF16", "F16", "F32"),
    ),
)  # fmt: skip
