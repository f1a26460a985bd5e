"""The packers of vLLM that several layouts share, for the probe modules of packing fingerprints."""

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.layouts.layout import PackedParts, Probe

_SCALE_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}


def _nibble_words(codes: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Eight codes per word along the last axis, the first in the lowest bits."""
    pairs = np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)
    return torch.from_numpy(pairs.view(np.int32))


def _parameter(layer: torch.nn.Module, name: str, data: torch.Tensor, **dims: int) -> None:
    parameter = torch.nn.Parameter(data, requires_grad=False)
    vars(parameter).update(dims)
    setattr(layer, name, parameter)


def stored_layer(probe: Probe) -> torch.nn.Module:
    """A layer as vLLM holds it after it has loaded a compressed-tensors checkpoint."""
    layer = torch.nn.Module()
    layer.bias = None
    scales = torch.from_numpy(probe.scales).to(_SCALE_DTYPES[probe.geometry.activation_dtype])
    _parameter(layer, "w", _nibble_words(probe.codes), input_dim=1, output_dim=0, packed_dim=1)
    _parameter(layer, "s", scales, input_dim=1, output_dim=0)
    layer.z = None
    if not probe.geometry.symmetric:
        zeros = _nibble_words(np.ascontiguousarray(probe.zero_points.T)).t().contiguous()
        _parameter(layer, "z", zeros, input_dim=1, output_dim=0, packed_dim=0)
    return layer


def vllm_kernel(probe: Probe):
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel
    from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
        MPLinearLayerConfig,
    )
    from vllm.scalar_type import scalar_types

    geometry, symmetric = probe.geometry, probe.geometry.symmetric
    config = MPLinearLayerConfig(
        full_weight_shape=(geometry.k, geometry.n),
        partition_weight_shape=(geometry.k, geometry.n),
        weight_type=scalar_types.uint4b8 if symmetric else scalar_types.uint4,
        act_type=torch.float16,  # with which vLLM never chooses 8-bit activations by itself
        group_size=geometry.group_size,
        zero_points=not symmetric,
    )
    return CPUWNA16LinearKernel(config, "w", "s", "z")


def as_torch(probe: Probe) -> torch.Tensor:
    codes = torch.from_numpy(probe.codes)
    views = {"f8e4m3": torch.float8_e4m3fn, "bf16": torch.bfloat16}
    return codes.view(views[probe.code]) if probe.code in views else codes


def pack_vnni(probe: Probe) -> PackedParts:
    parts = {"weight": torch.ops._C.convert_weight_packed(as_torch(probe))}
    scales = torch.from_numpy(probe.scales)
    if probe.code == "s8" or probe.geometry.granularity == "channel":
        parts["weight_scale"] = scales[:, 0].contiguous()
    elif probe.geometry.granularity == "block":
        parts["weight_scale_inv"] = scales[:: probe.geometry.scale_rows].contiguous()
    elif probe.code == "f8e4m3":
        parts["weight_scale_inv"] = scales[:1].expand(1, -(-probe.geometry.k // 128)).contiguous()
    return parts
