"""vLLM's recipes that say `xeon6: verified`, by the class and the traits of their models.

A model here has the class, the rotary embedding, the ties and the kinds of layers of those that it
stands for; its weights are random, and it is small."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inputs import transcripts
from model_classes import CLASSES, ModelClass
from phi4_multimodal import as_multimodal
from tiny_models import VOCABULARY

_SIZE: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
_VISION: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2,
}  # fmt: skip
_SEES = ("image", "video")
# What is run of every model, besides what its makers or others publish.
USUAL = ("ct", "int8", "fp8")


@dataclass(frozen=True)
class Recipe:
    """`published`: what the recipe itself names, of FORMS. `adapt`: makes of a folder with that model
    the one that is meant."""

    models: tuple[str, ...]
    model: ModelClass | None  # None: gpt-oss, which has a writer of its own
    published: tuple[str, ...] = ()
    usual: tuple[str, ...] = USUAL
    prompts: Callable[[], list[Any]] | None = None  # None: tokens
    options: Mapping[str, Any] = field(default_factory=dict)  # of vLLM's, which this model needs
    adapt: Callable[[Path], None] = lambda folder: None

    @property
    def forms(self) -> tuple[str, ...]:
        return self.published + tuple(form for form in self.usual if form not in self.published)


def _llama(factor: float, **own: Any) -> ModelClass:
    rope = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 1024,
    }  # fmt: skip
    return ModelClass("LlamaConfig", {**_SIZE, "rope_parameters": rope, **own}, "LlamaForCausalLM")


def _qwen3(tied: bool) -> ModelClass:
    own = {**_SIZE, "head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": 2}
    return ModelClass("Qwen3Config", {**own, "tie_word_embeddings": tied}, "Qwen3ForCausalLM")


_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_DELTA_NET = {
    "head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_value_heads": 16, "linear_num_key_heads": 8, "linear_key_head_dim": 64,
    "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
}  # fmt: skip
_QWEN3_5_VISION = {"depth": 1, "num_heads": 2, "out_hidden_size": 1024,
                   "hidden_size": 64, "intermediate_size": 128}  # fmt: skip


def _qwen3_5(config: str, text: dict[str, Any], architecture: str) -> ModelClass:
    return ModelClass(
        config,
        {"text_config": {**_SIZE, **_DELTA_NET, **text}, "vision_config": _QWEN3_5_VISION,
         "image_token_id": 10, "video_token_id": 11, "vision_start_token_id": 12,
         "vision_end_token_id": 13,
         "tie_word_embeddings": text.get("tie_word_embeddings", False)},
        architecture, "AutoModelForImageTextToText", sees=_SEES, experts_give_rows=True,
    )  # fmt: skip


_GEMMA4 = {
    **_SIZE, "global_head_dim": 128, "sliding_window": 64, "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "tie_word_embeddings": True,
}  # fmt: skip
_GEMMA4_VISION = {**_VISION, "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 32}


def _gemma4(**text: Any) -> ModelClass:
    return ModelClass(
        "Gemma4Config",
        {"text_config": {**_GEMMA4, **text}, "vision_config": _GEMMA4_VISION, "audio_config": None,
         "image_token_id": 10, "video_token_id": 11, "audio_token_id": 12, "boi_token_id": 13,
         "eoi_token_id": 14, "boa_token_id": 15, "eoa_token_index": 16,
         "tie_word_embeddings": True},
        "Gemma4ForConditionalGeneration", "AutoModelForImageTextToText", sees=_SEES,
        experts_give_rows=True,
    )  # fmt: skip


_PHI4 = ModelClass(
    "Phi3Config", {key: value for key, value in _SIZE.items() if key != "head_dim"},
    "Phi3ForCausalLM",
)  # fmt: skip
_WHISPER = ModelClass(
    "WhisperConfig",
    {"hidden_size": 1024, "encoder_layers": 2, "decoder_layers": 2, "num_key_value_heads": 16,
     "decoder_attention_heads": 16, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
     "num_mel_bins": 128, "max_source_positions": 200, "max_target_positions": 448,
     "decoder_start_token_id": 3, "suppress_tokens": None, "begin_suppress_tokens": None,
     "tie_word_embeddings": True},
    "WhisperForConditionalGeneration", "AutoModelForSpeechSeq2Seq",
    quantized=r".*(_proj|fc[12])", unquantized="proj_out",
    preprocessor={"processor_class": "WhisperProcessor",
                  "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128,
                  "sampling_rate": 16000, "hop_length": 160, "n_fft": 400, "chunk_length": 4},
)  # fmt: skip


RECIPES = {
    "llama3": Recipe(
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct",
         "meta-llama/Llama-3.3-70B-Instruct"),
        _llama(8.0), ("int8", "awq", "fp8-tensor"),
    ),
    "llama3_tied": Recipe(
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct",
         "meta-llama/Llama-3.2-3B-Instruct"),
        _llama(32.0, tie_word_embeddings=True), ("int8", "awq"),
    ),
    "qwen3_tied": Recipe(("Qwen/Qwen3-1.7B", "Qwen/Qwen3-4B"), _qwen3(True), ("fp8",)),
    "qwen3": Recipe(("Qwen/Qwen3-8B",), _qwen3(False)),
    "qwen3_moe": Recipe(
        ("Qwen/Qwen3-30B-A3B",),
        ModelClass("Qwen3MoeConfig", {**_SIZE, **_EXPERTS, "norm_topk_prob": True},
                   "Qwen3MoeForCausalLM"),
    ),
    "qwen3_5": Recipe(
        ("Qwen/Qwen3.5-4B",),
        _qwen3_5("Qwen3_5Config", {"tie_word_embeddings": True},
                 "Qwen3_5ForConditionalGeneration"),
    ),
    "qwen3_5_moe": Recipe(
        ("Qwen/Qwen3.5-35B-A3B",),
        _qwen3_5("Qwen3_5MoeConfig", {**_EXPERTS, "shared_expert_intermediate_size": 256},
                 "Qwen3_5MoeForConditionalGeneration"),
        ("fp8", "gptq"),
    ),
    "granite": Recipe(
        ("ibm-granite/granite-3.2-2b-instruct",),
        ModelClass("GraniteConfig",
                   {**{key: value for key, value in _SIZE.items() if key != "head_dim"},
                    "embedding_multiplier": 12.0, "logits_scaling": 8.0,
                    "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
                    "tie_word_embeddings": True}, "GraniteForCausalLM"),
    ),
    "llama4": Recipe(
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct",),
        ModelClass(
            "Llama4Config",
            {"text_config": {**_SIZE, "intermediate_size": 512, "intermediate_size_mlp": 3072,
                             "num_local_experts": 8, "num_experts_per_tok": 1,
                             "interleave_moe_layer_step": 1, "attention_chunk_size": 256},
             "vision_config": {**_VISION, "num_hidden_layers": 1, "image_size": 56,
                               "patch_size": 14, "vision_output_dim": 64,
                               "projector_input_dim": 64, "projector_output_dim": 64}},
            "Llama4ForConditionalGeneration", "AutoModelForImageTextToText", sees=("image",),
        ),
        ("fp8-tensor",),
    ),
    "phi4": Recipe(("microsoft/Phi-4-reasoning",), _PHI4),
    "gpt_oss": Recipe(("openai/gpt-oss-20b",), None, ("mxfp4",), ()),
    "glm4": Recipe(
        ("zai-org/glm-4-9b-hf",),
        ModelClass("GlmConfig", {**_SIZE, "attention_bias": True}, "GlmForCausalLM"),
    ),
    "gemma4_moe": Recipe(
        ("google/gemma-4-26B-A4B-it",),
        _gemma4(hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=8,
                top_k_experts=2, moe_intermediate_size=256),
        ("fp8-channel",),
    ),
    "gemma4_small": Recipe(
        ("google/gemma-4-E2B-it", "google/gemma-4-E4B-it"),
        _gemma4(hidden_size_per_layer_input=64, vocab_size_per_layer_input=VOCABULARY,
                layer_types=["sliding_attention", "full_attention"] * 2,
                num_kv_shared_layers=2, use_double_wide_mlp=True),
        ("fp8-channel", "ct"),
    ),
    "diffusion_gemma": Recipe(
        ("google/diffusiongemma-26B-A4B-it",),
        ModelClass(
            "DiffusionGemmaConfig",
            {"text_config": {**_GEMMA4, "num_experts": 8, "top_k_experts": 2,
                             "moe_intermediate_size": 256, "num_global_key_value_heads": 2},
             "vision_config": _GEMMA4_VISION, "canvas_length": 16, "image_token_id": 10,
             "boi_token_id": 13, "eoi_token_id": 14, "tie_word_embeddings": True},
            "DiffusionGemmaForBlockDiffusion", "AutoModelForImageTextToText", sees=_SEES,
            experts_give_rows=True, unquantized=r".*(vision|self_conditioning).*",
        ),
    ),
    "phi4_multimodal": Recipe(
        ("microsoft/Phi-4-multimodal-instruct",),
        # vLLM makes the tower for pictures unless there may be no videos either.
        replace(_PHI4, architecture="Phi4MMForCausalLM", sees=(*_SEES, "audio")),
        options={"trust_remote_code": True}, adapt=as_multimodal,
    ),
    "whisper": Recipe(
        ("openai/whisper-large-v3",), _WHISPER, prompts=transcripts,
        options={"max_num_batched_tokens": 256},  # all of a sound at once
    ),
}  # fmt: skip

# And models of no recipe, for features.py.
MODELS = RECIPES | {"deepseek_v3_mtp": Recipe((), CLASSES["deepseek_v3_mtp"])}
