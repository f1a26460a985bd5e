"""Tiny random models of the classes that people serve, made by transformers from a config, and
quantized checkpoints of them. Nothing is downloaded."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from quantized import FORMATS, fp8_config, quantize, quantize_fp8
from safetensors.torch import load_file, save_file
from tiny_models import VOCABULARY, write_tokenizer

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
    quantized: str = r".*_(proj|with_mqa)|.*\.(experts|mlp)\.(\d+\.)?w[123]"
    text: str = ""  # where the language model's config lies
    unquantized: str = r".*(vision|visual|audio|multi_modal|embed_|lm_head|\.gate$).*"

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
}


def _random_tensors(one: ModelClass) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """config.json and the checkpoint, as transformers writes them."""
    torch.manual_seed(7)
    config = one.of_config()
    model = getattr(transformers, one.auto).from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() >= 2:
                tensor.normal_(std=1.0 if "embed" in name else 1.0 / tensor.shape[-1] ** 0.5)
            elif "norm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            else:
                tensor.normal_(std=0.1)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = {}
        for path in Path(folder).glob("*.safetensors"):
            tensors |= load_file(path)
        return json.loads((Path(folder) / "config.json").read_text()), tensors


def is_quantized(one: ModelClass, name: str, tensor: torch.Tensor) -> bool:
    module, _, last = name.rpartition(".")
    return (
        last == "weight"
        and tensor.dim() == 2
        and re.fullmatch(one.quantized, module) is not None
        and re.fullmatch(one.unquantized, module) is None
    )


def _ignored(one: ModelClass, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    return [
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.dim() == 2 and not is_quantized(one, name, tensor)
    ]


def write_class(folder: Path, key: str, form: str = "ct", group_size: int = 64) -> Path:
    """`form`: one of FORMATS; fp8 (as DeepSeek stores it); bf16 (not quantized)."""
    one = CLASSES[key]
    config, tensors = _random_tensors(one)
    ignored = _ignored(one, tensors)
    quantization = None
    if form == "fp8":
        quantization = {
            "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
            "weight_block_size": [128, 128], "modules_to_not_convert": ignored,
        }  # fmt: skip
    elif form != "bf16":
        quantization = FORMATS[form][1](group_size, True)
        if "ignore" in quantization:
            quantization["ignore"] = ignored
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if quantization is None or not is_quantized(one, name, tensor):
            stored[name] = tensor
        elif form == "fp8":
            parts = _fp8_blocks(tensor)
            stored[name], stored[f"{module}.weight_scale_inv"] = parts
        else:
            q = quantize(tensor.float().numpy(), group_size, True)
            for part, value in FORMATS[form][0](q, True).items():
                stored[f"{module}.{part}"] = value
    config["architectures"] = [one.architecture]
    if quantization is not None:
        config["quantization_config"] = quantization
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    stored = {name: tensor.contiguous() for name, tensor in stored.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _fp8_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks of 128 x 128; the last may be smaller."""
    n, k = weight.shape
    scales = torch.empty(-(-n // 128), -(-k // 128))
    codes = torch.empty(n, k, dtype=torch.float8_e4m3fn)
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            at = (slice(row * 128, row * 128 + 128), slice(column * 128, column * 128 + 128))
            block = weight[at].float()
            scales[row, column] = block.abs().max() / 448
            codes[at] = (block / scales[row, column]).to(torch.float8_e4m3fn)
    return codes, scales
