"""Quantized weights, and how compressed-tensors, GPTQ, AWQ and AutoRound store them."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Quantized:
    """Codes [N, K] from 0 to 15, scales and zero points [N, G], group of each input channel [K]."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    groups: np.ndarray


def quantize(weight: np.ndarray, group_size: int, symmetric: bool, order=None) -> Quantized:
    """To nearest, with scales as f16 holds them. `order`: input channels in the order of groups."""
    n, k = weight.shape
    order = np.arange(k) if order is None else order
    groups = np.empty(k, np.int64)
    groups[order] = np.arange(k) // group_size
    sorted_weight = weight[:, order].reshape(n, k // group_size, group_size)
    if symmetric:
        scales = np.abs(sorted_weight).max(2) / 7.5
        zeros = np.full(scales.shape, 8)
    else:
        low, high = sorted_weight.min(2).clip(max=0), sorted_weight.max(2).clip(min=0)
        scales = (high - low) / 15
        zeros = np.round(-low / scales).clip(1, 15)  # 0 means several things in GPTQ
    scales = scales.astype(np.float16).astype(np.float32)
    codes = np.round(weight / scales[:, groups]) + zeros[:, groups]
    return Quantized(codes.clip(0, 15).astype(np.uint8), scales, zeros.astype(np.uint8), groups)


def words(rows: np.ndarray) -> torch.Tensor:
    """Eight codes per word along the last axis, the first in the lowest bits."""
    pairs = np.ascontiguousarray(rows[:, 0::2] | rows[:, 1::2] << 4)
    return torch.from_numpy(pairs.view(np.int32))


def awq_words(rows: np.ndarray) -> torch.Tensor:
    shuffled = rows.reshape(rows.shape[0], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
    return words(shuffled.reshape(rows.shape))


def f16(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.float16)


def as_compressed_tensors(q: Quantized, symmetric: bool) -> dict[str, torch.Tensor]:
    parts = {
        "weight_packed": words(q.codes),
        "weight_scale": torch.from_numpy(q.scales).to(torch.bfloat16),
        "weight_shape": torch.tensor(q.codes.shape, dtype=torch.int64),
    }
    if not symmetric:
        parts["weight_zero_point"] = words(np.ascontiguousarray(q.zeros.T)).t().contiguous()
    return parts


def as_gptq(q: Quantized, symmetric: bool) -> dict[str, torch.Tensor]:
    """Version 1: the stored zero point is one less."""
    return {
        "qweight": words(q.codes).t().contiguous(),
        "qzeros": words(np.ascontiguousarray(q.zeros.T - 1)),
        "scales": f16(q.scales.T),
        "g_idx": torch.from_numpy(q.groups.astype(np.int32)),
    }


def as_awq(q: Quantized, symmetric: bool) -> dict[str, torch.Tensor]:
    return {
        "qweight": awq_words(np.ascontiguousarray(q.codes.T)),
        "qzeros": awq_words(np.ascontiguousarray(q.zeros.T)),
        "scales": f16(q.scales.T),
    }


def as_auto_round(q: Quantized, symmetric: bool) -> dict[str, torch.Tensor]:
    parts = as_gptq(q, symmetric)
    del parts["g_idx"]
    return parts


def _ct_config(group_size: int, symmetric: bool, **_) -> dict:
    weights = {
        "num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group",
        "group_size": group_size, "dynamic": False, "actorder": None,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "quantization_status": "compressed", "config_groups": {"group_0": group},
    }  # fmt: skip


def _gptq_config(
    group_size: int, symmetric: bool, act_order: bool = False, head: bool = False
) -> dict:
    return {
        "quant_method": "gptq", "bits": 4, "group_size": group_size, "sym": symmetric,
        "desc_act": act_order, "checkpoint_format": "gptq", "lm_head": head,
    }  # fmt: skip


def _awq_config(group_size: int, symmetric: bool, **_) -> dict:
    return {
        "quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True,
        "version": "gemm", "modules_to_not_convert": None,
    }  # fmt: skip


def _auto_round_config(group_size: int, symmetric: bool, **_) -> dict:
    return {
        "quant_method": "auto-round", "bits": 4, "group_size": group_size, "sym": symmetric,
        "packing_format": "auto_round:auto_gptq", "data_type": "int",
    }  # fmt: skip


def quantize_bytes(weight: np.ndarray) -> dict[str, torch.Tensor]:
    """compressed-tensors, 8 bits, one scale per output channel."""
    scales = torch.from_numpy(np.abs(weight).max(1, keepdims=True) / 127).to(torch.bfloat16)
    codes = (torch.from_numpy(weight) / scales.float()).round().clamp(-128, 127)
    return {"weight": codes.to(torch.int8), "weight_scale": scales}


def quantize_fp8(weight: np.ndarray, rows: int, columns: int) -> dict[str, torch.Tensor]:
    """compressed-tensors, e4m3, one scale per block."""
    n, k = weight.shape
    blocks = torch.from_numpy(weight).view(n // rows, rows, k // columns, columns)
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).view(n, k)
    return {"weight": codes.to(torch.float8_e4m3fn), "weight_scale": scales}


def quantize_fp8_channels(weight: np.ndarray) -> dict[str, torch.Tensor]:
    """compressed-tensors, e4m3, one scale per output channel."""
    values = torch.from_numpy(weight)
    scales = values.abs().amax(1, keepdim=True) / 448
    return {"weight": (values / scales).to(torch.float8_e4m3fn), "weight_scale": scales}


def bytes_config(symmetric: bool) -> dict:
    weights = {
        "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False,
    }  # fmt: skip
    inputs = {
        "num_bits": 8, "type": "int", "symmetric": symmetric, "strategy": "token", "dynamic": True,
    }  # fmt: skip
    return _whole_bytes_config("int-quantized", weights, inputs)


def fp8_config(rows: int, columns: int) -> dict:
    weights = {
        "num_bits": 8, "type": "float", "symmetric": True, "strategy": "block", "dynamic": False,
        "block_structure": [rows, columns],
    }  # fmt: skip
    inputs = {
        "num_bits": 8, "type": "float", "symmetric": True, "strategy": "group", "dynamic": True,
        "group_size": columns,
    }  # fmt: skip
    return _whole_bytes_config("float-quantized", weights, inputs)


def fp8_channels_config(dynamic: bool) -> dict:
    """`dynamic`: activations are FP8, too; else they stay as they are."""
    weights = {
        "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False,
    }  # fmt: skip
    inputs = {
        "num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True,
    }  # fmt: skip
    return _whole_bytes_config("float-quantized", weights, inputs if dynamic else None)


def _whole_bytes_config(form: str, weights: dict, inputs: dict | None) -> dict:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
        "quantization_status": "compressed", "config_groups": {"group_0": group},
    }  # fmt: skip


# By name: how weights of 4 bits are stored, and what config.json says about them.
FORMATS = {
    "ct": (as_compressed_tensors, _ct_config),
    "gptq": (as_gptq, _gptq_config),
    "awq": (as_awq, _awq_config),
    "auto-round": (as_auto_round, _auto_round_config),
}
