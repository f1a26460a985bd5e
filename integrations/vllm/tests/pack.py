"""Packs probe modules and golden inputs by the closed forms. For tests only."""

import numpy as np
import torch

from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts.arm_int4 import arm_int4_nibble
from prepack_vllm.layouts.int4_w4a8 import int4_w4a8_nibble
from prepack_vllm.layouts.int8 import int8_vnni_byte
from prepack_vllm.layouts.layout import Probe
from prepack_vllm.layouts.mxfp4 import mxfp4_nibble
from prepack_vllm.layouts.neon import neon_element
from prepack_vllm.layouts.vnni import pairs_element
from prepack_vllm.layouts.wna16 import wna16_nibble

_FLOATS = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def _place_nibbles(codes, place, size):
    packed = np.zeros(size, np.uint8)
    np.bitwise_or.at(packed, place // 2, (codes << (4 * (place % 2))).astype(np.uint8))
    return packed


def _place_elements(codes, place, count):
    packed = np.zeros(count, codes.dtype)
    packed[place] = codes
    return packed


def _scales(values, dtype):
    return torch.from_numpy(np.ascontiguousarray(values)).to(_FLOATS[dtype])


def _nibbles_of_rows(rows):
    return torch.from_numpy(np.ascontiguousarray(rows[:, 0::2] | rows[:, 1::2] << 4))


def pack_wna16(g: Geometry, codes, scales, zeros):
    weight = _place_nibbles(codes, wna16_nibble(g.n, g.k), g.n * g.k // 2)
    return {
        "weight": torch.from_numpy(weight.view(np.int32).reshape(g.n // 16, 2 * g.k)),
        "weight_scale": _scales(scales.T, g.activation_dtype),
        "weight_zero_point": _nibbles_of_rows(zeros.T).view(torch.int32),
    }


def pack_arm_int4(g: Geometry, codes, scales, zeros):
    """Groups only, N a multiple of 8, no bias."""
    size = g.groups * (4 * g.group_size + 16) + 64
    place = arm_int4_nibble(g.n, g.k, g.group_size)
    records = _place_nibbles(codes ^ 8, place, g.n // 8 * size).reshape(g.n // 8, size)
    rounded = _scales(scales, "BF16")
    bits = rounded.view(torch.int16).numpy().reshape(g.n // 8, 8, g.groups).transpose(0, 2, 1)
    groups = records[:, :-64].reshape(g.n // 8, g.groups, -1)
    groups[:, :, -16:] = np.ascontiguousarray(bits).view(np.uint8)
    records[:, :-64] = groups.reshape(g.n // 8, -1)
    # Sixteen input channels at a time, in the packer's order: the sums are rounded each time.
    steps = (codes.astype(np.int32) - 8).reshape(g.n, g.k // 32, 2, 2, 8).sum((2, 4))
    sums = np.zeros(g.n, np.float32)
    wide = rounded.float().numpy()
    for step in range(g.k // 32):
        for half in range(2):
            sums += steps[:, step, half].astype(np.float32) * wide[:, step * 32 // g.group_size]
    records[:, -64:-32] = sums.view(np.uint8).reshape(g.n // 8, 32)
    return {"weight": torch.from_numpy(records)}


def pack_int4_w4a8(g: Geometry, codes, scales, zeros):
    b = g.block_k
    size = 16 * b + 128
    blocks = (g.n // 32) * (g.k // b)
    weight = _place_nibbles(codes, int4_w4a8_nibble(g.n, g.k, b), blocks * size)
    differences = codes.astype(np.int32) - np.repeat(zeros, g.group_size, axis=1)
    sums = differences.reshape(g.n // 32, 32, g.k // b, b).sum(3).transpose(0, 2, 1)
    weight = weight.reshape(blocks, size)
    weight[:, 16 * b :] = (
        np.ascontiguousarray(sums.astype(np.int32)).view(np.uint8).reshape(blocks, 128)
    )
    # vLLM holds scales as it computes, and widens those.
    rounded = _scales(scales, g.activation_dtype).float().numpy()

    def by_block(values):
        return np.ascontiguousarray(values.reshape(g.n // 32, 32, g.groups).transpose(0, 2, 1))

    return {
        "weight": torch.from_numpy(weight.reshape(g.n // 32, g.k // b, size)),
        "weight_scale": torch.from_numpy(by_block(rounded)),
        "weight_zero_point": torch.from_numpy(by_block(zeros.astype(np.int8))),
    }


def pack_int8_vnni(g: Geometry, codes, scales, zeros):
    place = int8_vnni_byte(g.n, g.k)
    weight = _place_elements(codes, place, g.n * (g.k + 4)).reshape(g.n // 32, 32 * (g.k + 4))
    sums = (128 * codes.astype(np.int32).sum(1)).astype(np.int32).reshape(g.n // 32, 32)
    weight[:, 32 * g.k :] = sums.view(np.int8)
    return {
        "weight": torch.from_numpy(weight.reshape(g.n, g.k + 4)),
        "weight_scale": torch.from_numpy(np.ascontiguousarray(scales[:, 0])),
    }


def pack_plain(g: Geometry, codes, scales, zeros, dtype="F32"):
    return {
        "weight": torch.from_numpy(codes.copy()),
        "weight_scale": _scales(scales[:, 0], dtype),
    }


def pack_pairs(g: Geometry, codes, scales, zeros):
    weight = _place_elements(codes, pairs_element(g.n, g.k), g.n * g.k)
    parts = {"weight": torch.from_numpy(weight.reshape(g.n, g.k))}
    if g.granularity == "channel":
        parts["weight_scale"] = torch.from_numpy(np.ascontiguousarray(scales[:, 0]))
    elif g.granularity == "tensor":
        columns = -(-g.k // 128)
        parts["weight_scale_inv"] = torch.from_numpy(np.full((1, columns), scales[0, 0]))
    else:
        parts["weight_scale_inv"] = torch.from_numpy(np.ascontiguousarray(scales[:: g.scale_rows]))
    return parts


def pack_neon(g: Geometry, codes, scales, zeros):
    place = neon_element(g.n, g.k, 8 // codes.dtype.itemsize)
    weight = _place_elements(codes, place, g.n * g.k).reshape(g.n, g.k)
    parts = {"weight": torch.from_numpy(weight)}
    if codes.dtype == np.int8:
        parts["weight_scale"] = torch.from_numpy(np.ascontiguousarray(scales[:, 0]))
    return parts


def pack_mxfp4(g: Geometry, codes, scales, zeros):
    weight = _place_nibbles(codes, mxfp4_nibble(g.n, g.k), g.n * g.k // 2)
    exponents = (np.log2(scales) + 127).astype(np.uint8).reshape(g.n // 32, 32, g.groups)
    return {
        "weight": torch.from_numpy(weight.reshape(g.n, g.k // 2)),
        "weight_scale": torch.from_numpy(np.ascontiguousarray(exponents.transpose(0, 2, 1))),
    }


def pack_zentorch_4_bits(g: Geometry, codes, scales, zeros):
    weight = _nibbles_of_rows(codes ^ 8 if g.symmetric else codes)
    return {
        "weight": weight.view(torch.int32 if g.activations is None else torch.int8),
        "weight_scale": _scales(scales.T, "BF16"),
        "weight_zero_point": torch.from_numpy(np.ascontiguousarray(zeros.T).astype(np.int8)),
    }


def pack_zentorch_int8(g: Geometry, codes, scales, zeros):
    return pack_plain(g, codes, scales, zeros, "BF16")


def pack_plain_conv1d(g: Geometry, codes, scales, zeros):
    parts = pack_plain(g, codes, scales, zeros)
    return {**parts, "weight": parts["weight"].t().contiguous()}


PACK = {
    "vllm-cpu/wna16": pack_wna16,
    "vllm-cpu/int4-w4a8": pack_int4_w4a8,
    "vllm-arm/int4-w4a8": pack_arm_int4,
    "vllm-arm/int8-neon": pack_neon,
    "vllm-arm/bf16-neon": pack_neon,
    "vllm-cpu/int8-vnni": pack_int8_vnni,
    "vllm-cpu/int8-plain": pack_plain,
    "vllm-arm/int8-plain": pack_plain,
    "vllm-cpu/fp8-vnni": pack_pairs,
    "vllm-cpu/bf16-vnni": pack_pairs,
    "vllm-cpu/mxfp4": pack_mxfp4,
    "plain/bf16": pack_plain,
    "plain/bf16-conv1d": pack_plain_conv1d,
    "zentorch/woq": pack_zentorch_4_bits,
    "zentorch/da8w4": pack_zentorch_4_bits,
    "zentorch/int8": pack_zentorch_int8,
}


def pack_probe(layout):
    def pack(probe: Probe):
        return PACK[layout](probe.geometry, probe.codes, probe.scales, probe.zero_points)

    return pack
