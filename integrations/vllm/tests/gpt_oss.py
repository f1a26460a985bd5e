"""Tiny gpt-oss models with random weights, as the published checkpoints store them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from mxfp4 import draw_mxfp4
from safetensors.torch import save_file
from tiny_models import VOCABULARY, bf16, write_tokenizer


@dataclass(frozen=True)
class GptOss:
    hidden: int = 128
    inner: int = 192  # of an expert
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    layers: int = 2
    experts: int = 4


QUANTIZATION = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
    ],
}  # fmt: skip


def config_of(model: GptOss) -> dict:
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "dtype": "bfloat16",
        "attention_bias": True, "head_dim": model.head, "hidden_act": "silu",
        "hidden_size": model.hidden, "intermediate_size": model.inner,
        "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads, "num_experts_per_tok": 2,
        "num_local_experts": model.experts, "experts_per_token": 2,
        "layer_types": ["sliding_attention", "full_attention"][: model.layers],
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
            "original_max_position_embeddings": 4096, "truncate": False,
        },
        "sliding_window": 8, "swiglu_limit": 7.0, "tie_word_embeddings": False,
        "vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "quantization_config": QUANTIZATION,
    }  # fmt: skip


def tensors_of(model: GptOss, seed: int = 1) -> dict[str, torch.Tensor]:
    random = np.random.default_rng(seed)

    def draw(*shape, scale):
        return bf16((random.standard_normal(shape) * scale).astype(np.float32))

    q, kv = model.heads * model.head, model.kv_heads * model.head
    attention = {"q_proj": (q, model.hidden), "k_proj": (kv, model.hidden),
                 "v_proj": (kv, model.hidden), "o_proj": (model.hidden, q)}  # fmt: skip
    experts = {"gate_up_proj": (2 * model.inner, model.hidden),
               "down_proj": (model.hidden, model.inner)}  # fmt: skip
    tensors = {}
    for layer in range(model.layers):
        name = f"model.layers.{layer}"
        for projection, (n, k) in attention.items():
            tensors[f"{name}.self_attn.{projection}.weight"] = draw(n, k, scale=1.5 / k**0.5)
            tensors[f"{name}.self_attn.{projection}.bias"] = draw(n, scale=0.3)
        tensors[f"{name}.self_attn.sinks"] = draw(model.heads, scale=1.0)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}.{norm}.weight"] = 1 + draw(model.hidden, scale=0.1)
        tensors[f"{name}.mlp.router.weight"] = draw(model.experts, model.hidden, scale=0.3)
        tensors[f"{name}.mlp.router.bias"] = draw(model.experts, scale=0.1)
        for projection, (n, k) in experts.items():
            stem = f"{name}.mlp.experts.{projection}"
            codes, scales = draw_mxfp4(random, model.experts, n, k)
            tensors[f"{stem}_blocks"] = codes.view(model.experts, n, k // 32, 16)
            tensors[f"{stem}_scales"] = scales
            tensors[f"{stem}_bias"] = draw(model.experts, n, scale=0.3)
    tensors["model.embed_tokens.weight"] = draw(VOCABULARY, model.hidden, scale=1.0)
    tensors["model.norm.weight"] = 1 + draw(model.hidden, scale=0.1)
    tensors["lm_head.weight"] = draw(VOCABULARY, model.hidden, scale=0.3)
    return tensors


def write_gpt_oss(folder: Path, model: GptOss = GptOss()) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config_of(model)))
    write_tokenizer(folder)
    save_file(tensors_of(model), folder / "model.safetensors", metadata={"format": "pt"})
    return folder
