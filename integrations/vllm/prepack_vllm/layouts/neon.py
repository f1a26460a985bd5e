"""vllm-arm/int8-neon and vllm-arm/bf16-neon, for experts."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import Weights, bf16_to_f64, f64, indices, raw, read_elements
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts.layout import INT8_SCHEMES, Layout, PackedParts, Packer, Probe, Scheme
from prepack_vllm.layouts.vllm_packers import as_torch
from prepack_vllm.parts import Along, Part, channel_scale, input_order


def neon_element(n: int, k: int, inputs: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    return (i // 8) * 8 * k + (j // inputs) * 8 * inputs + (i % 8) * inputs + j % inputs


def _runs(g: Geometry, dtype: str, inputs: int) -> Part:
    """Panels of 8 output channels, in which so many input channels of each lie side by side."""
    shape = (g.n // 8, g.k // inputs, 8 * inputs)
    return Part(
        "weight", dtype, shape, Along(0, 8, 32), Along(1, inputs, 32), stored_shape=(g.n, g.k)
    )


def _parts_of_int8_neon(g: Geometry) -> list[Part]:
    return [_runs(g, "I8", 8), channel_scale(g, "F32"), *input_order(g)]


def _parts_of_bf16_neon(g: Geometry) -> list[Part]:
    return [_runs(g, "BF16", 4), *input_order(g)]


class _Neon(Kernel):
    """vLLM has an op for whole experts only, silu(gate) · up and down again. The module multiplies
    as `down` of an expert whose gate is constant, and whose `up` hands x on."""

    experts_only = True
    packer: str  # the op of _C that packs experts
    _GATE = 64.0  # = silu(64) in f32

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        n, k, rows = self.geometry.n, self.geometry.k, x.size(0)
        gate_up = torch.cat([torch.zeros(k, k), torch.eye(k)]).to(self.parts["weight"].dtype)[None]
        packed = torch.empty_like(gate_up)
        getattr(torch.ops._C, self.packer)(gate_up, packed, "neon")
        y = torch.empty((rows, n), dtype=x.dtype)
        getattr(torch.ops._C, self.ops[0].removeprefix("_C::"))(
            y,
            x,
            packed,
            self.parts["weight"].view(1, n, k),
            *self._scales(),
            torch.cat([torch.full((k,), self._GATE), torch.zeros(k)]).to(x.dtype)[None],
            None if bias is None else (bias * self._GATE)[None],
            torch.full((rows, 1), 1 / self._GATE),
            torch.zeros((rows, 1), dtype=torch.int32),
            False,
            "silu",
            "neon",
        )
        return y

    @abstractmethod
    def _scales(self) -> tuple[torch.Tensor, ...]:
        """Those of gate and up, and those of down, if the op takes any."""


class Int8Neon(_Neon):
    ops = ("_C::cpu_fused_moe_int8",)
    packer = "prepack_moe_weight_int8"

    def _scales(self) -> tuple[torch.Tensor, ...]:
        return torch.ones(1, 2 * self.geometry.k), self.parts["weight_scale"][None]


class Bf16Neon(_Neon):
    ops = ("_C::cpu_fused_moe",)
    packer = "prepack_moe_weight"

    def _scales(self) -> tuple[torch.Tensor, ...]:
        return ()


def _int8_neon(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = read_elements(raw(parts["weight"]), neon_element(g.n, g.k, 8), np.int8)
    return codes.astype(np.float64) * f64(parts["weight_scale"])[:, None]


def _bf16_neon(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = neon_element(g.n, g.k, 4)
    return bf16_to_f64(read_elements(raw(parts["weight"]), place, np.uint16))


def _pack_neon(probe: Probe) -> PackedParts:
    weight = as_torch(probe)[None].contiguous()
    packed = torch.empty_like(weight)
    if probe.code == "bf16":
        torch.ops._C.prepack_moe_weight(weight, packed, "neon")
        return {"weight": packed}
    torch.ops._C.prepack_moe_weight_int8(weight, packed, "neon")
    return {"weight": packed, "weight_scale": torch.from_numpy(probe.scales[:, 0].copy())}


LAYOUTS = (
    Layout(
        "vllm-arm/int8-neon", 1, "816ab8de14f1e0aec0b25c31e4862614", _parts_of_int8_neon, Int8Neon,
        weights=_int8_neon,
        schemes=INT8_SCHEMES,
        activation_dtypes=("BF16", "F16", "F32"),
        packer=Packer(_pack_neon, "_C::prepack_moe_weight_int8", on_arm=True),
    ),
    Layout(
        "vllm-arm/bf16-neon", 1, "9424d925f558fd080b570355e4ce6e35", _parts_of_bf16_neon, Bf16Neon,
        weights=_bf16_neon,
        schemes=(Scheme("bf16", "tensor"),),
        packer=Packer(_pack_neon, "_C::prepack_moe_weight", on_arm=True),
    ),
)  # fmt: skip
