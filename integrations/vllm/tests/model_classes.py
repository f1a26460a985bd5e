"""Tiny random models of the classes that people serve, made by transformers from a config. Nothing is
downloaded."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from tiny_models import VOCABULARY

_COMMON: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class ModelClass:
    config: str  # transformers' class of it
    own: Mapping[str, Any]  # what differs from _COMMON
    architecture: str
    auto: str = "AutoModelForCausalLM"
    # Linear layers that are quantized. Routers, heads, towers and embeddings never are.
    quantized: str = r".*(_(proj|with_mqa|qkvz|qkv|proj_z)|put_linear|\.w[123])"
    # Experts that transformers stacks: does a row belong to an output? Otherwise inputs come first.
    experts_give_rows: bool = False
    predicts: bool = False  # has it a further layer for speculative decoding (MTP)?
    # What its tower for images takes, in vLLM's terms; empty: it has none. The tower stays as it is.
    sees: tuple[str, ...] = ()
    # preprocessor_config.json, where vLLM asks for one although no image comes.
    preprocessor: Mapping[str, Any] = field(default_factory=dict)
    unquantized: str = r".*(vision|visual|multi_modal|model_projection|eh_proj).*"

    def of_config(self) -> Any:
        own = dict(_COMMON) | dict(self.own)
        return getattr(transformers, self.config)(**own)


_MLA = {
    "num_key_value_heads": 4, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "q_lora_rank": 128,
}  # fmt: skip
_GROUPED = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
    "routed_scaling_factor": 1.5, "norm_topk_prob": True,
}  # fmt: skip

_ROPE = {"rope_theta": 10000.0}
_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "norm_topk_prob": True, "head_dim": 64,
}  # fmt: skip
# A gated delta net beside full attention, as in Qwen3-Next and Qwen3.5.
_DELTA_NET = {
    "head_dim": 64, "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_TEXT = {key: value for key, value in _COMMON.items() if key != "tie_word_embeddings"}

CLASSES = {
    "deepseek_v2": ModelClass(
        "DeepseekV2Config",
        {**_MLA, **_GROUPED, "topk_method": "group_limited_greedy", "scoring_func": "softmax"},
        "DeepseekV2ForCausalLM",
    ),
    "deepseek_v3": ModelClass(
        "DeepseekV3Config",
        {**_MLA, **_GROUPED, "num_nextn_predict_layers": 0, "topk_method": "noaux_tc",
         "scoring_func": "sigmoid"},
        "DeepseekV3ForCausalLM",
    ),
    "deepseek_v3_mtp": ModelClass(
        "DeepseekV3Config",
        {**_MLA, **_GROUPED, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
        "DeepseekV3ForCausalLM", predicts=True,
    ),
    "qwen3_moe": ModelClass("Qwen3MoeConfig", _EXPERTS, "Qwen3MoeForCausalLM"),
    "qwen2_moe": ModelClass(
        "Qwen2MoeConfig", {**_EXPERTS, "shared_expert_intermediate_size": 256},
        "Qwen2MoeForCausalLM",
    ),
    "mixtral": ModelClass(
        "MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64},
        "MixtralForCausalLM",
    ),
    "glm4_moe": ModelClass(
        "Glm4MoeConfig", {**_GROUPED, "head_dim": 64, "partial_rotary_factor": 0.5},
        "Glm4MoeForCausalLM",
    ),
    "minimax_m2": ModelClass(
        "MiniMaxM2Config",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64, "rotary_dim": 32,
         "use_qk_norm": True, "scoring_func": "sigmoid", "use_routing_bias": True},
        "MiniMaxM2ForCausalLM",
    ),
    "qwen3_next": ModelClass(
        "Qwen3NextConfig",
        {**_EXPERTS, **_DELTA_NET, "shared_expert_intermediate_size": 256,
         "decoder_sparse_step": 1},
        "Qwen3NextForCausalLM",
    ),
    "phi3": ModelClass("Phi3Config", {}, "Phi3ForCausalLM"),
    "gemma3": ModelClass("Gemma3TextConfig", {"head_dim": 64, "sliding_window": 32},
                         "Gemma3ForCausalLM"),
    "stablelm": ModelClass("StableLmConfig", {}, "StableLmForCausalLM"),
    "falcon_h1": ModelClass(
        "FalconH1Config",
        {"head_dim": 64, "mamba_d_ssm": 256, "mamba_n_heads": 4, "mamba_d_head": 64,
         "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_expand": 1},
        "FalconH1ForCausalLM",
    ),
    "granite_hybrid": ModelClass(
        "GraniteMoeHybridConfig",
        {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 64,
         "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_expand": 2, "num_local_experts": 0,
         "shared_intermediate_size": 512, "position_embedding_type": "rope"},
        "GraniteMoeHybridForCausalLM",
    ),
    "qwen3_5": ModelClass(
        "Qwen3_5Config",
        {"text_config": {**_TEXT, **_DELTA_NET},
         "vision_config": {"depth": 1, "hidden_size": 64, "intermediate_size": 128,
                           "num_heads": 2, "out_hidden_size": 256}},
        "Qwen3_5ForConditionalGeneration", "AutoModelForImageTextToText", sees=("image", "video"),
    ),
    "gemma3_vision": ModelClass(
        "Gemma3Config",
        {"text_config": {**_TEXT, "head_dim": 64, "sliding_window": 32},
         "vision_config": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
                           "num_attention_heads": 2, "image_size": 56, "patch_size": 14},
         "mm_tokens_per_image": 4},
        "Gemma3ForConditionalGeneration", "AutoModelForImageTextToText", sees=("image", "video"),
    ),
    "gemma4": ModelClass(
        "Gemma4TextConfig",
        {"head_dim": 64, "global_head_dim": 64, "sliding_window": 32,
         "vocab_size_per_layer_input": VOCABULARY,
         "layer_types": ["sliding_attention", "full_attention"]},
        "Gemma4ForCausalLM",
    ),
    "llama4": ModelClass(
        "Llama4TextConfig",
        {"head_dim": 64, "intermediate_size_mlp": 512, "num_local_experts": 4,
         "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 128},
        "Llama4ForCausalLM",
    ),
    "llama4_dense": ModelClass(
        "Llama4TextConfig",
        {"head_dim": 64, "intermediate_size_mlp": 512, "interleave_moe_layer_step": 3,
         "attention_chunk_size": 128},
        "Llama4ForCausalLM",
    ),
    "kimi_k2": ModelClass(
        "DeepseekV3Config",
        {**_MLA, **_GROUPED, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0,
         "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
        "DeepseekV3ForCausalLM",
    ),
    "kimi_k2_5": ModelClass(
        "Kimi_K25Config",
        {"text_config": {**_TEXT, "model_type": "deepseek_v3", **_MLA, **_GROUPED, "n_group": 1,
                         "topk_group": 1, "num_nextn_predict_layers": 0,
                         "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
         "vision_config": {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128,
                           "num_attention_heads": 2, "pos_emb_height": 4, "pos_emb_width": 4},
         "projection_hidden_size": 64, "image_token_id": 10, "video_token_id": 11},
        "KimiK25ForConditionalGeneration", "AutoModelForImageTextToText", sees=("vision_chunk",),
        preprocessor={"media_proc_cfg": {
            "merge_kernel_size": 2, "temporal_merge_kernel_size": 4, "patch_size": 14,
            "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "in_patch_limit": 64,
            "patch_limit_on_one_side": 16, "fixed_output_tokens": None,
            "in_patch_limit_each_frame": 64, "in_patch_limit_video": None,
        }},
    ),
    "qwen2_5_vl": ModelClass(
        "Qwen2_5_VLConfig",
        {"text_config": {**_TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
         "vision_config": {"depth": 1, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2,
                           "out_hidden_size": 256, "fullatt_block_indexes": [0]},
         "image_token_id": 10, "video_token_id": 11, "vision_start_token_id": 12,
         "vision_end_token_id": 13},
        "Qwen2_5_VLForConditionalGeneration", "AutoModelForImageTextToText", sees=("image", "video"),
    ),
}  # fmt: skip


def random_tensors(one: ModelClass) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """config.json and the checkpoint, as transformers writes them."""
    torch.manual_seed(7)
    config = one.of_config()
    model = getattr(transformers, one.auto).from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() >= 2:
                # A tied head would give every token itself, whatever the layers say.
                large = "embed" in name and not config.tie_word_embeddings
                tensor.normal_(std=1.0 if large else 1.0 / tensor.shape[-1] ** 0.5)
            elif "norm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            else:
                tensor.normal_(std=0.1)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = {}
        for path in Path(folder).glob("*.safetensors"):
            tensors |= load_file(path)
        config = json.loads((Path(folder) / "config.json").read_text())
    # transformers gives the layers of Kimi K2.5 the name that those of its tower have in checkpoints.
    tensors = {name.replace("language_model.model.blocks.", "language_model.model.layers."): tensor
               for name, tensor in tensors.items()}  # fmt: skip
    tensors = _each_expert(tensors, one.experts_give_rows)
    if one.predicts:
        config["num_nextn_predict_layers"] = 1
        tensors |= _prediction_layer(tensors, config["num_hidden_layers"], config["hidden_size"])
    return config, tensors


def _prediction_layer(
    tensors: dict[str, torch.Tensor], decoder_layers: int, hidden: int
) -> dict[str, torch.Tensor]:
    """As DeepSeek V3 has it: a decoder layer, and what joins the last token to the hidden state."""
    last, new = f"model.layers.{decoder_layers - 1}.", f"model.layers.{decoder_layers}."
    found = {
        name.replace(last, new): tensor.flip(0)
        for name, tensor in tensors.items()
        if name.startswith(last)
    }
    found[f"{new}eh_proj.weight"] = torch.randn(hidden, 2 * hidden).bfloat16() / hidden**0.5
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        found[f"{new}{norm}.weight"] = torch.ones(hidden, dtype=torch.bfloat16)
    found[f"{new}embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    found[f"{new}shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    return found


def _each_expert(
    tensors: dict[str, torch.Tensor], experts_give_rows: bool
) -> dict[str, torch.Tensor]:
    """Experts that transformers stacks, each by itself: as quantizers store them."""
    found = {}
    for name, tensor in tensors.items():
        layer, _, last = name.rpartition(".")
        if tensor.dim() != 3 or last not in ("gate_up_proj", "down_proj"):
            found[name] = tensor
            continue
        for expert, stored in enumerate(tensor):
            weight = stored if experts_give_rows else stored.t()
            members = [weight] if last == "down_proj" else weight.chunk(2)
            names = [last] if last == "down_proj" else ["gate_proj", "up_proj"]
            for one, member in zip(names, members, strict=True):
                found[f"{layer}.{expert}.{one}.weight"] = member
    return found


def is_quantized(one: ModelClass, name: str, tensor: torch.Tensor) -> bool:
    module, _, last = name.rpartition(".")
    return (
        last == "weight"
        and tensor.dim() == 2
        and re.fullmatch(one.quantized, module) is not None
        and re.fullmatch(one.unquantized, module) is None
    )


def ignored_modules(one: ModelClass, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    return [
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.dim() == 2 and not is_quantized(one, name, tensor)
    ]
