"""The weights of a packed module in f64, from its parts by the closed forms."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm import closed_forms as forms
from prepack_vllm.geometry import Geometry

Weights = npt.NDArray[np.float64]


def _raw(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def _f64(tensor: torch.Tensor) -> Weights:
    return tensor.double().numpy()


def _per_weight(values: npt.NDArray[np.generic], g: Geometry) -> npt.NDArray[np.generic]:
    """[N, G] to [N, K]."""
    return np.repeat(values, g.group_size, axis=1)[:, : g.k]


def _nibble_zeros(parts: Mapping[str, torch.Tensor], g: Geometry) -> npt.NDArray[np.int64]:
    zeros = parts.get("weight_zero_point")
    if zeros is None:
        return np.full((g.n, g.groups), 8)
    place = forms.row_nibble(g.groups, g.n)
    return forms.read_nibbles(_raw(zeros), place).T.astype(np.int64)


def _wna16(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = forms.read_nibbles(_raw(parts["weight"]), forms.wna16_nibble(g.n, g.k)).astype(np.int64)
    scales = _f64(parts["weight_scale"]).T
    return (codes - _per_weight(_nibble_zeros(parts, g), g)) * _per_weight(scales, g)


def _int4_w4a8(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = forms.int4_w4a8_nibble(g.n, g.k, g.block_k)
    codes = forms.read_nibbles(_raw(parts["weight"]), place).astype(np.int64)

    def rows(name: str) -> Weights:
        blocked = _f64(parts[name]).reshape(g.n // 32, g.groups, 32)
        return blocked.transpose(0, 2, 1).reshape(g.n, g.groups)

    zeros, scales = rows("weight_zero_point"), rows("weight_scale")
    return (codes - _per_weight(zeros, g)) * _per_weight(scales, g)


def _arm_int4(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = forms.arm_int4_nibble(g.n, g.k, g.group_size)
    codes = forms.read_nibbles(_raw(parts["weight"]), place).astype(np.int64)
    records = _raw(parts["weight"]).reshape(-(-g.n // 8), -1)
    if g.groups == 1:
        held = records[:, -64:-32].copy().view(np.float32).astype(np.float64) * 16
        scales = held.reshape(-1, 1)
    else:
        groups = records[:, :-64].reshape(len(records), g.groups, -1)
        held = forms.bf16_to_f64(groups[:, :, -16:].copy().view(np.uint16))
        scales = held.transpose(0, 2, 1).reshape(-1, g.groups)
    return np.where(codes > 7, codes - 16, codes) * _per_weight(scales[: g.n], g)


def _int8_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = forms.read_elements(_raw(parts["weight"]), forms.int8_vnni_byte(g.n, g.k), np.int8)
    return codes.astype(np.float64) * _f64(parts["weight_scale"])[:, None]


def _int8_neon(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = forms.read_elements(_raw(parts["weight"]), forms.neon_element(g.n, g.k, 8), np.int8)
    return codes.astype(np.float64) * _f64(parts["weight_scale"])[:, None]


def _bf16_neon(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = forms.neon_element(g.n, g.k, 4)
    return forms.bf16_to_f64(forms.read_elements(_raw(parts["weight"]), place, np.uint16))


def _int8_rows(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return _f64(parts["weight"]) * _f64(parts["weight_scale"])[:, None]


def _fp8_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = forms.pairs_element(g.n, g.k)
    values = forms.e4m3_to_f64(forms.read_elements(_raw(parts["weight"]), place, np.uint8))
    if g.granularity == "channel":
        return values * _f64(parts["weight_scale"])[:, None]
    scales = np.repeat(_f64(parts["weight_scale_inv"]), g.scale_rows, axis=0)[: g.n]
    return values * np.repeat(scales, 128, axis=1)[:, : g.k]


def _bf16_vnni(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    place = forms.pairs_element(g.n, g.k)
    return forms.bf16_to_f64(forms.read_elements(_raw(parts["weight"]), place, np.uint16))


def _mxfp4(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = forms.read_nibbles(_raw(parts["weight"]), forms.mxfp4_nibble(g.n, g.k))
    exponents = _raw(parts["weight_scale"]).reshape(g.n // 32, g.groups, 32)
    scales = forms.e8m0_to_f64(exponents.transpose(0, 2, 1).reshape(g.n, g.groups))
    return forms.e2m1_to_f64(codes) * _per_weight(scales, g)


def _plain_bf16(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return _f64(parts["weight"])


def _plain_bf16_conv1d(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    return _f64(parts["weight"]).T


def _zentorch_4_bits(parts: Mapping[str, torch.Tensor], g: Geometry) -> Weights:
    codes = forms.read_nibbles(_raw(parts["weight"]), forms.row_nibble(g.n, g.k)).astype(np.int64)
    zeros = parts.get("weight_zero_point")
    if zeros is None:
        differences = np.where(codes > 7, codes - 16, codes).astype(np.float64)
    else:
        differences = codes - _per_weight(_f64(zeros).T, g)
    return differences * _per_weight(_f64(parts["weight_scale"]).T, g)


_WEIGHTS = {
    "vllm-cpu/wna16": _wna16,
    "vllm-cpu/int4-w4a8": _int4_w4a8,
    "vllm-cpu/int8-vnni": _int8_vnni,
    "vllm-cpu/int8-plain": _int8_rows,
    "vllm-arm/int4-w4a8": _arm_int4,
    "vllm-arm/int8-neon": _int8_neon,
    "vllm-arm/int8-plain": _int8_rows,
    "vllm-arm/bf16-neon": _bf16_neon,
    "vllm-cpu/fp8-vnni": _fp8_vnni,
    "vllm-cpu/bf16-vnni": _bf16_vnni,
    "vllm-cpu/mxfp4": _mxfp4,
    "plain/bf16": _plain_bf16,
    "plain/bf16-conv1d": _plain_bf16_conv1d,
    "zentorch/woq": _zentorch_4_bits,
    "zentorch/da8w4": _zentorch_4_bits,
    "zentorch/int8": _int8_rows,
}


def weights(layout: str, geometry: Geometry, parts: Mapping[str, torch.Tensor]) -> Weights:
    """[N, K], with the input channels in the order that they are packed in."""
    return _WEIGHTS[layout](parts, geometry)


def product(
    layout: str, geometry: Geometry, parts: Mapping[str, torch.Tensor], x: torch.Tensor
) -> Weights:
    """x · Wᵀ + bias, with nothing rounded."""
    inputs = _f64(x)
    if "input_order" in parts:
        inputs = inputs[:, parts["input_order"].numpy()]
    y = inputs @ weights(layout, geometry, parts).T
    return y + _f64(parts["bias"]) if "bias" in parts else y
