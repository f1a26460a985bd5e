"""Experts in MXFP4 that are stored one by one, gate and up apart, in several dialects."""

from pathlib import Path

import numpy as np
import torch
from tiny_models import Model, float_weights, write_folder


def draw_mxfp4(random, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes, two to a byte, and scales of moderate size."""
    *rows, k = shape
    codes = random.integers(0, 256, (*rows, k // 2), dtype=np.uint8)
    scales = random.integers(119, 124, (*rows, k // 32), dtype=np.uint8)
    return torch.from_numpy(codes), torch.from_numpy(scales)


def _ct_config(floats: list[str]) -> dict:
    weights = {
        "num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32,
        "dynamic": False, "actorder": None, "scale_dtype": "torch.uint8",
    }  # fmt: skip
    form = "mxfp4-pack-quantized"
    group = {
        "targets": ["Linear"], "weights": weights, "input_activations": None, "format": form,
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head", *floats],
        "quantization_status": "compressed", "config_groups": {"group_0": group},
    }  # fmt: skip


def _quark_config(floats: list[str]) -> dict:
    weight = {
        "dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1,
        "is_dynamic": False, "scale_format": "e8m0", "scale_type": "float",
        "observer_cls": "PerBlockMXObserver", "symmetric": None,
    }  # fmt: skip
    return {
        "quant_method": "quark", "exclude": ["lm_head", *floats], "layer_quant_config": {},
        "layer_type_quant_config": {}, "kv_cache_quant_config": {}, "quant_mode": "eager_mode",
        "global_quant_config": {
            "weight": weight, "input_tensors": weight | {"is_dynamic": True},
            "output_tensors": None, "bias": None,
        },
        "export": {"weight_format": "real_quantized", "pack_method": "reorder"},
    }  # fmt: skip


# By dialect: the tensor of the codes, and what config.json says.
DIALECTS = {
    "ct": ("weight_packed", _ct_config),
    "quark": ("weight", _quark_config),
    # The one that vLLM's CPU backend itself runs; prepack reads it in gpt-oss and DeepSeek only.
    "vllm": ("weight", lambda floats: {"quant_method": "mxfp4"}),
}


def write_mxfp4(folder: Path, model: Model, dialect: str) -> Path:
    """The same weights in every dialect."""
    codes_name, config = DIALECTS[dialect]
    random = np.random.default_rng(2)
    linears, tensors = float_weights(model)
    floats = []
    for name, (weight, _) in linears.items():
        if ".experts." not in name:
            floats.append(name)
            tensors[f"{name}.weight"] = torch.from_numpy(weight).to(torch.bfloat16)
            continue
        codes, scales = draw_mxfp4(random, *weight.shape)
        tensors[f"{name}.{codes_name}"] = codes
        tensors[f"{name}.weight_scale"] = scales
    floats += [f"model.layers.{layer}.{model.block}.gate" for layer in range(model.layers)]
    return write_folder(folder, model, tensors, config(floats))
