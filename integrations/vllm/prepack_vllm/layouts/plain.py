"""plain/bf16 and plain/bf16-conv1d: rows, and columns, as they are."""

from collections.abc import Mapping

import torch

from prepack_vllm.closed_forms import Weights, f64
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts.layout import Layout, Scheme
from prepack_vllm.parts import Along, Part, input_order


def _parts_of_plain_bf16(g: Geometry) -> list[Part]:
    return [Part("weight", "BF16", (g.n, g.k), Along(0), Along(1)), *input_order(g)]


def _parts_of_plain_bf16_conv1d(g: Geometry) -> list[Part]:
    return [Part("weight", "BF16", (g.k, g.n), Along(1), Along(0)), *input_order(g)]


class PlainBf16(Kernel):
    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.parts["weight"], bias)


class PlainBf16Conv1d(Kernel):
    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.parts["weight"].t(), bias)


def _plain_bf16(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return f64(parts["weight"])


def _plain_bf16_conv1d(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return f64(parts["weight"]).T


LAYOUTS = (
    Layout(
        "plain/bf16", 1, "ec8dc038fc969fe23d903d3927b29fe2", _parts_of_plain_bf16, PlainBf16,
        weights=_plain_bf16,
        schemes=(Scheme("bf16", "tensor", f16=True),),
    ),
    Layout(
        "plain/bf16-conv1d", 1, "20024c8ba59a5bc6f491a8ad714fb758", _parts_of_plain_bf16_conv1d,
        PlainBf16Conv1d,
        weights=_plain_bf16_conv1d,
        schemes=(Scheme("bf16", "tensor", f16=True),),
    ),
)  # fmt: skip
