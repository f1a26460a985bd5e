"""The packers of vLLM and zentorch themselves, for the probe modules of packing fingerprints.

What a runtime would make of a checkpoint at load is what its kernel reads. A packer is called only
where it runs: vLLM's for 4 bits with 16-bit activations is Python and runs on every CPU; the others
are ops of its library for AVX-512 with BF16, or of zentorch. int8-plain, zentorch/int8 and
plain/bf16 have none, for nothing is packed: their bytes are those of the checkpoint.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.kernels import has_op
from prepack_vllm.probes import Probe

PackedParts = Mapping[str, torch.Tensor]
Packer = Callable[[Probe], PackedParts]

_SCALE_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}


def _nibble_words(codes: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Eight codes per word along the last axis, the first in the lowest bits."""
    pairs = np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)
    return torch.from_numpy(pairs.view(np.int32))


def _parameter(layer: torch.nn.Module, name: str, data: torch.Tensor, **dims: int) -> None:
    parameter = torch.nn.Parameter(data, requires_grad=False)
    vars(parameter).update(dims)
    setattr(layer, name, parameter)


def _stored_layer(probe: Probe) -> torch.nn.Module:
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


def _vllm_kernel(probe: Probe):
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


def _pack_wna16(probe: Probe) -> PackedParts:
    layer = _stored_layer(probe)
    _vllm_kernel(probe).process_weights_after_loading(layer)
    parts = {"weight": layer.w.data, "weight_scale": layer.s.data}
    if not probe.geometry.symmetric:
        parts["weight_zero_point"] = layer.z.data
    return parts


def _pack_int4_w4a8(probe: Probe) -> PackedParts:
    layer = _stored_layer(probe)
    for name in ("w", "s", "z"):
        parameter = getattr(layer, name)
        if parameter is not None:
            parameter.data = parameter.data.t().contiguous()
    _vllm_kernel(probe)._process_gptq_weights_w4a8(layer)
    return {
        "weight": layer.w.data,
        "weight_scale": layer.s.data,
        "weight_zero_point": layer.z.data,
    }


def _as_torch(probe: Probe) -> torch.Tensor:
    codes = torch.from_numpy(probe.codes)
    views = {"f8e4m3": torch.float8_e4m3fn, "bf16": torch.bfloat16}
    return codes.view(views[probe.code]) if probe.code in views else codes


def _pack_vnni(probe: Probe) -> PackedParts:
    parts = {"weight": torch.ops._C.convert_weight_packed(_as_torch(probe))}
    scales = torch.from_numpy(probe.scales)
    if probe.code == "s8" or probe.geometry.granularity == "channel":
        parts["weight_scale"] = scales[:, 0].contiguous()
    elif probe.geometry.granularity == "block":
        parts["weight_scale_inv"] = scales[:: probe.geometry.scale_rows].contiguous()
    elif probe.code == "f8e4m3":
        parts["weight_scale_inv"] = scales[:1].expand(1, -(-probe.geometry.k // 128)).contiguous()
    return parts


def _pack_mxfp4(probe: Probe) -> PackedParts:
    codes = torch.from_numpy(probe.codes[:, 0::2] | probe.codes[:, 1::2] << 4)
    exponents = torch.from_numpy((np.log2(probe.scales) + 127).astype(np.uint8))
    return {
        "weight": torch.ops._C.convert_weight_packed(codes[None]),
        "weight_scale": torch.ops._C.convert_scale_packed(exponents[None]),
    }


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


def _pack_arm_int4(probe: Probe) -> PackedParts:
    codes = torch.from_numpy(probe.codes[:, 0::2] | probe.codes[:, 1::2] << 4)
    scales = torch.from_numpy(probe.scales).to(torch.bfloat16)
    geometry = probe.geometry
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
        codes, scales, None, geometry.group_size, geometry.k, geometry.n
    )
    return {"weight": packed}


def _pack_neon(probe: Probe) -> PackedParts:
    weight = _as_torch(probe)[None].contiguous()
    packed = torch.empty_like(weight)
    if probe.code == "bf16":
        torch.ops._C.prepack_moe_weight(weight, packed, "neon")
        return {"weight": packed}
    torch.ops._C.prepack_moe_weight_int8(weight, packed, "neon")
    return {"weight": packed, "weight_scale": torch.from_numpy(probe.scales[:, 0].copy())}


# By layout: the packer, and the op that it needs.
_PACKERS: dict[str, tuple[Packer, str | None]] = {
    "vllm-cpu/wna16": (_pack_wna16, None),
    "vllm-cpu/int4-w4a8": (_pack_int4_w4a8, "_C::convert_weight_packed_scale_zp"),
    "vllm-cpu/int8-vnni": (_pack_vnni, "_C::convert_weight_packed"),
    "vllm-cpu/fp8-vnni": (_pack_vnni, "_C::convert_weight_packed"),
    "vllm-cpu/bf16-vnni": (_pack_vnni, "_C::convert_weight_packed"),
    "vllm-cpu/mxfp4": (_pack_mxfp4, "_C::convert_scale_packed"),
    "vllm-arm/int4-w4a8": (_pack_arm_int4, "aten::_dyn_quant_pack_4bit_weight"),
    "vllm-arm/int8-neon": (_pack_neon, "_C::prepack_moe_weight_int8"),
    "vllm-arm/bf16-neon": (_pack_neon, "_C::prepack_moe_weight"),
    "zentorch/woq": (_pack_zentorch_4_bits, "zentorch::zentorch_woq_repack_weight"),
    "zentorch/da8w4": (_pack_zentorch_4_bits, "zentorch::zentorch_woq_repack_weight"),
}


def packer_of(layout: str) -> Packer | None:
    """The consumer's packer, where there is one and it runs here."""
    packer, op = _PACKERS.get(layout, (None, None))
    # On other CPUs the ops of these names pack something else.
    on_arm = packer in (_pack_arm_int4, _pack_neon)
    if on_arm and not torch.backends.kleidiai.is_available():
        return None
    return packer if op is None or has_op(op) else None
