"""The weights of a packed module in f64, from its parts by the closed forms."""

from collections.abc import Mapping

import torch

from prepack_vllm.closed_forms import Weights, f64
from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts import LAYOUTS


def weights(layout: str, geometry: Geometry, parts: Mapping[str, torch.Tensor]) -> Weights:
    """[N, K], with the input channels in the order that they are packed in."""
    return LAYOUTS[layout].weights(parts, geometry)


def product(
    layout: str, geometry: Geometry, parts: Mapping[str, torch.Tensor], x: torch.Tensor
) -> Weights:
    """x · Wᵀ + bias, with nothing rounded."""
    inputs = f64(x)
    if "input_order" in parts:
        inputs = inputs[:, parts["input_order"].numpy()]
    y = inputs @ weights(layout, geometry, parts).T
    return y + f64(parts["bias"]) if "bias" in parts else y
