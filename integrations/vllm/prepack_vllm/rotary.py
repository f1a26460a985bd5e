"""Llama 4's q and k, whose rows vLLM puts into another order while it loads them.

Its rotary embedding wants both halves of a head one after the other, and the checkpoints have them
alternating. Rows of a packed weight cannot be moved, so the plug-in loads these modules past the
model, and moves the outputs instead: the same numbers at the same places.
"""

import dataclasses
from typing import Any

import torch
from vllm.model_executor.layers.linear import QKVParallelLinear

from prepack_vllm.errors import Unsupported
from prepack_vllm.linear import PrepackLinearMethod
from prepack_vllm.manifest import Manifest, PackedModule

_MODEL_TYPE = "llama4_text"
# Whose rows the model can move: they are stored one by one.
_ROWS = ("plain/bf16",)


def past_the_model(manifest: Manifest, hf_config: Any) -> Manifest:
    """With q, k and v among what the plug-in loads itself, for Llama 4."""
    text = getattr(hf_config, "text_config", hf_config)
    if getattr(text, "model_type", None) != _MODEL_TYPE:
        return manifest
    names = {name for name, module in manifest.modules.items() if _is_of_attention(module)}
    return dataclasses.replace(manifest, past_the_model=frozenset(names))


def _is_of_attention(module: PackedModule) -> bool:
    last = module.name.rpartition(".")[2]
    if "self_attn" not in module.name or last not in ("q_proj", "k_proj", "v_proj", "qkv_proj"):
        return False
    if module.fused and module.layout in _ROWS:
        raise Unsupported(
            module.name,
            "vLLM moves the rows of q and k of Llama 4, and does not find them in a fused module",
            hint="Pack again without --fuse",
        )
    if "bias" in module.parts:
        raise Unsupported(
            module.name, "the layer has a bias, which vLLM leaves in another order than its rows"
        )
    return module.layout not in _ROWS


def order_outputs(method: PrepackLinearMethod, layer: torch.nn.Module, manifest: Manifest) -> None:
    """Of the heads that this rank holds."""
    if not manifest.past_the_model or not isinstance(layer, QKVParallelLinear):
        return
    size = layer.head_size
    head = torch.arange(size).view(size // 2, 2).t().reshape(-1)
    heads = layer.num_heads + layer.num_kv_heads
    moved = (torch.arange(heads)[:, None] * size + head).reshape(-1)
    kept = torch.arange(layer.num_kv_heads * layer.v_head_size) + heads * size
    method.output_order = torch.cat((moved, kept))
