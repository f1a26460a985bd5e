"""Tiny models with random weights, with and without experts, a tokenizer, and quantized checkpoints
of them."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from quantized import FORMATS, fp8_config, quantize, quantize_fp8
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 256
HEAD = 32


@dataclass(frozen=True)
class Model:
    name: str
    architecture: str
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    layers: int
    bias: bool  # of q, k and v
    tied: bool
    experts: int = 0  # in place of one MLP

    @property
    def block(self) -> str:
        """What stands beside the attention."""
        return "block_sparse_moe" if self.name == "mixtral" else "mlp"

    def linears(self):
        """Every linear layer of a decoder layer that is quantized: name, N, K, has it a bias."""
        q, kv = self.heads * HEAD, self.kv_heads * HEAD
        yield "self_attn.q_proj", q, self.hidden, self.bias
        yield "self_attn.k_proj", kv, self.hidden, self.bias
        yield "self_attn.v_proj", kv, self.hidden, self.bias
        yield "self_attn.o_proj", self.hidden, q, False
        gate, up, down = ("w1", "w3", "w2") if self.name == "mixtral" else PROJECTIONS
        mlps = [f"{self.block}.experts.{expert}" for expert in range(self.experts)]
        for mlp in mlps or [self.block]:
            yield f"{mlp}.{gate}", self.inner, self.hidden, False
            yield f"{mlp}.{up}", self.inner, self.hidden, False
            yield f"{mlp}.{down}", self.hidden, self.inner, False

    def other_shapes(self):
        """Of the tensors of a decoder layer that are not quantized, but for its norms."""
        if self.experts:
            yield f"{self.block}.gate.weight", (self.experts, self.hidden)


PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
LLAMA = Model("llama", "LlamaForCausalLM", 128, 256, 4, 2, 2, bias=False, tied=False)
QWEN2 = Model("qwen2", "Qwen2ForCausalLM", 128, 256, 4, 2, 2, bias=True, tied=True)
MIXTRAL = Model(
    "mixtral", "MixtralForCausalLM", 128, 256, 4, 2, 2, bias=False, tied=False, experts=4
)
QWEN3_MOE = Model(
    "qwen3_moe", "Qwen3MoeForCausalLM", 128, 256, 4, 4, 2, bias=False, tied=False, experts=4
)


def write_tokenizer(folder: Path) -> None:
    words = {f"w{index}": index for index in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="w0", bos_token="w1", eos_token="w2"
    ).save_pretrained(folder)


def model_config(model: Model) -> dict:
    return {
        "architectures": [model.architecture], "model_type": model.name, "dtype": "bfloat16",
        "hidden_size": model.hidden, "intermediate_size": model.inner, "hidden_act": "silu",
        "num_hidden_layers": model.layers, "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads, "head_dim": HEAD, "vocab_size": VOCABULARY,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": model.tied, "bos_token_id": 1, "eos_token_id": 2,
        "use_sliding_window": False, "attention_bias": False,
    } | _experts_config(model)  # fmt: skip


def _experts_config(model: Model) -> dict:
    if not model.experts:
        return {}
    return {
        "num_local_experts": model.experts, "num_experts": model.experts, "num_experts_per_tok": 2,
        "moe_intermediate_size": model.inner, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "sliding_window": None,
    }  # fmt: skip


def float_weights(model: Model, seed: int = 1):
    """Name of a linear layer to (weight, bias or None), and all other tensors."""
    random = np.random.default_rng(seed)

    def draw(*shape, scale):
        return (random.standard_normal(shape) * scale).astype(np.float32)

    linears, others = {}, {}
    for layer in range(model.layers):
        for name, n, k, bias in model.linears():
            weight = draw(n, k, scale=1.5 / k**0.5)
            vector = bf16(draw(n, scale=0.3)) if bias else None
            linears[f"model.layers.{layer}.{name}"] = (weight, vector)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            ones = bf16(1 + draw(model.hidden, scale=0.1))
            others[f"model.layers.{layer}.{norm}.weight"] = ones
        for name, shape in model.other_shapes():
            others[f"model.layers.{layer}.{name}"] = bf16(draw(*shape, scale=0.3))
        if model.name == "qwen3_moe":
            for norm in ("self_attn.q_norm", "self_attn.k_norm"):
                ones = bf16(1 + draw(HEAD, scale=0.1))
                others[f"model.layers.{layer}.{norm}.weight"] = ones
    others["model.embed_tokens.weight"] = bf16(draw(VOCABULARY, model.hidden, scale=1.0))
    others["model.norm.weight"] = bf16(1 + draw(model.hidden, scale=0.1))
    if not model.tied:
        others["lm_head.weight"] = bf16(draw(VOCABULARY, model.hidden, scale=0.3))
    return linears, others


def bf16(values) -> torch.Tensor:
    return torch.from_numpy(values).to(torch.bfloat16)


def write_folder(folder: Path, model: Model, tensors: dict, quantization: dict | None) -> Path:
    folder.mkdir(parents=True)
    config = model_config(model)
    if quantization is not None:
        config["quantization_config"] = quantization
        if model.experts and "ignore" in quantization:
            quantization["ignore"].append("re:.*[.]gate$")
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_quantized(
    folder: Path, model: Model, form: str, group_size: int, symmetric: bool, head: bool = False
) -> Path:
    """`head`: is lm_head quantized, too?"""
    linears, tensors = float_weights(model)
    if head:
        linears["lm_head"] = (tensors.pop("lm_head.weight").float().numpy(), None)
    add_quantized(tensors, linears, form, group_size, symmetric, {})
    _, describe = FORMATS[form]
    return write_folder(folder, model, tensors, describe(group_size, symmetric, head=head))


def add_quantized(tensors, linears, form, group_size, symmetric, orders) -> None:
    """`orders`: by module, its input channels in the order of their groups."""
    store, _ = FORMATS[form]
    for name, (weight, bias) in linears.items():
        quantized = quantize(weight, group_size, symmetric, orders.get(name))
        for part, tensor in store(quantized, symmetric).items():
            tensors[f"{name}.{part}"] = tensor
        if bias is not None:
            tensors[f"{name}.bias"] = bias


def write_bytes(folder: Path, model: Model, quantize_one, quantization: dict) -> Path:
    """With weights of 8 bits, stored as they are. `quantize_one`: from a weight to its parts."""
    linears, tensors = float_weights(model)
    for name, (weight, bias) in linears.items():
        for part, tensor in quantize_one(weight).items():
            tensors[f"{name}.{part}"] = tensor
        if bias is not None:
            tensors[f"{name}.bias"] = bias
    return write_folder(folder, model, tensors, quantization)


def write_fp8(folder: Path, model: Model, rows: int, columns: int) -> Path:
    """With a scale for each block of so many output and input channels."""
    config = fp8_config(rows, columns)
    return write_bytes(folder, model, lambda weight: quantize_fp8(weight, rows, columns), config)


def write_ordered_pair(folder: Path, model: Model, group_size: int) -> tuple[Path, Path]:
    """Two GPTQ checkpoints of one model: down_proj in activation order, and without any order,
    because gate_proj and up_proj give their outputs in that order. Within a group the inputs
    ascend, as they do when packed: the sums are then the same to the bit."""
    _, describe = FORMATS["gptq"]
    linears, tensors = float_weights(model)
    orders = {}
    sorted_linears = dict(linears)
    for layer in range(model.layers):
        mlp = f"model.layers.{layer}.mlp"
        order = np.random.default_rng(layer).permutation(model.inner)
        order = np.sort(order.reshape(-1, group_size)).ravel()
        orders[f"{mlp}.down_proj"] = order
        for name in ("gate_proj", "up_proj"):
            sorted_linears[f"{mlp}.{name}"] = (linears[f"{mlp}.{name}"][0][order], None)
        sorted_linears[f"{mlp}.down_proj"] = (linears[f"{mlp}.down_proj"][0][:, order], None)
    sorted_tensors = dict(tensors)
    add_quantized(tensors, linears, "gptq", group_size, True, orders)
    add_quantized(sorted_tensors, sorted_linears, "gptq", group_size, True, {})
    ordered_config = describe(group_size, True, act_order=True)
    return (
        write_folder(folder / "ordered", model, tensors, ordered_config),
        write_folder(folder / "sorted", model, sorted_tensors, describe(group_size, True)),
    )
