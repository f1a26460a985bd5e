"""Checkpoints that prepack wrote in another format: vLLM itself runs them, and generates what it does from the source.

No kernel of this project takes part, and no plug-in is needed. Where vLLM's CPU path does not run a format, the test
says with what message it refuses.
"""

import numpy as np
import pytest
import torch
from conftest import convert
from engine import generate
from own_path import take_fp8_blocks
from quantized import (
    bytes_config,
    fp8_channels_config,
    quantize,
    quantize_bytes,
    quantize_fp8,
    quantize_fp8_channels,
)
from tiny_models import LLAMA, QWEN2, bf16, float_weights, write_bytes, write_folder, write_fp8, write_quantized

pytestmark = pytest.mark.without_zentorch  # it has kernels for some of the formats only

BLOCK = (64, 128)


def write_hf_fp8(folder):
    """FP8 in blocks as transformers stores it."""
    linears, tensors = float_weights(LLAMA)
    for name, (weight, _) in linears.items():
        parts = quantize_fp8(weight, *BLOCK)
        tensors[f"{name}.weight"], tensors[f"{name}.weight_scale_inv"] = parts["weight"], parts["weight_scale"]
    config = {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": list(BLOCK),
        "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip
    return write_folder(folder, LLAMA, tensors, config)


def write_static_fp8(folder):
    """compressed-tensors, e4m3, one scale per matrix, and one for its activations."""

    def quantize_one(weight):
        values = torch.from_numpy(weight)
        scale = values.abs().max().reshape(1) / 448
        return {"weight": (values / scale).to(torch.float8_e4m3fn), "weight_scale": scale,
                "input_scale": torch.tensor([0.02])}  # fmt: skip

    config = fp8_channels_config(True)
    group = config["config_groups"]["group_0"]
    group["weights"]["strategy"] = group["input_activations"]["strategy"] = "tensor"
    group["input_activations"]["dynamic"] = False
    return write_bytes(folder, LLAMA, quantize_one, config)


SOURCES = {
    "ct": lambda folder: write_quantized(folder, QWEN2, "ct", 32, True),
    "ct-asymmetric": lambda folder: write_quantized(folder, LLAMA, "ct", 32, False),
    "gptq": lambda folder: write_quantized(folder, LLAMA, "gptq", 32, True),
    "awq": lambda folder: write_quantized(folder, QWEN2, "awq", 32, False),
    "auto-round": lambda folder: write_quantized(folder, LLAMA, "auto-round", 32, True),
    "int8": lambda folder: write_bytes(folder, QWEN2, quantize_bytes, bytes_config(False)),
    "fp8-channels": lambda folder: write_bytes(folder, LLAMA, quantize_fp8_channels, fp8_channels_config(True)),
    "fp8-static": write_static_fp8,
    "ct-fp8-blocks": lambda folder: write_fp8(folder, LLAMA, *BLOCK),
    "fp8-blocks": write_hf_fp8,
}


def pair(tmp_path, source, target):
    source = SOURCES[source](tmp_path / "source")
    return source, convert(source, tmp_path / "out", "--target", target, "--fallback", "error")


SAME = [
    ("awq", "compressed-tensors"), ("awq", "awq"), ("awq", "auto-round-awq"), ("ct-asymmetric", "awq"),
    ("ct-asymmetric", "auto-round-awq"), ("ct-asymmetric", "compressed-tensors"), ("ct", "awq"), ("ct", "gptq"),
    ("ct", "gptq-v2"), ("ct", "auto-round"), ("ct", "auto-round-awq"), ("gptq", "compressed-tensors"),
    ("gptq", "awq"), ("gptq", "auto-round"), ("auto-round", "compressed-tensors"), ("auto-round", "gptq"), ("int8", "compressed-tensors"),
    ("fp8-channels", "compressed-tensors"), ("fp8-channels", "modelopt"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), SAME)
def test_the_same_tokens_and_logprobs(source, target, tmp_path):
    source, out = pair(tmp_path, source, target)
    assert generate(out) == generate(source)


@pytest.fixture
def static_fp8(monkeypatch):
    """The ops that quantize activations with a stored scale, which vLLM's library for CPUs lacks."""
    from vllm import _custom_ops

    own = _custom_ops.scaled_fp8_quant

    def quantized(values, scale):
        return (values.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)

    def scaled_fp8_quant(values, scale=None, *arguments, **options):
        return own(values, scale, *arguments, **options) if scale is None else (quantized(values, scale), scale)

    def silu_and_mul_quant(result, values, scale):
        gate, up = values.float().chunk(2, -1)
        result.copy_(quantized(torch.nn.functional.silu(gate) * up, scale))

    monkeypatch.setattr(_custom_ops, "scaled_fp8_quant", scaled_fp8_quant)
    monkeypatch.setattr(torch.ops._C, "silu_and_mul_quant", silu_and_mul_quant, raising=False)


@pytest.mark.parametrize("target", ["compressed-tensors", "modelopt"])
def test_static_fp8(target, tmp_path, static_fp8):
    source, out = pair(tmp_path, "fp8-static", target)
    assert generate(out) == generate(source)


BLOCKS = [("fp8-blocks", "compressed-tensors"), ("fp8-blocks", "fp8"), ("ct-fp8-blocks", "fp8")]


@pytest.mark.parametrize(("source", "target"), BLOCKS)
def test_fp8_in_blocks(source, target, tmp_path, standins, monkeypatch):
    """vLLM's kernel for it needs AMX; the op runs without, or has a stand-in."""
    source, out = pair(tmp_path, source, target)
    take_fp8_blocks(monkeypatch)
    assert generate(out) == generate(source)


def write_plain(folder, model, symmetric, scale_type):
    """In bf16, what 4-bit weights of `quantize` are."""
    linears, tensors = float_weights(model)
    for name, (weight, bias) in linears.items():
        q = quantize(weight, 32, symmetric)
        scales = torch.from_numpy(q.scales).to(scale_type).float().numpy()
        codes = q.codes.astype(np.float32) - q.zeros[:, q.groups]
        tensors[f"{name}.weight"] = bf16(codes * scales[:, q.groups])
        if bias is not None:
            tensors[f"{name}.bias"] = bias
    return write_folder(folder, model, tensors, None)


PLAIN = {
    "ct": (QWEN2, True, torch.bfloat16), "ct-asymmetric": (LLAMA, False, torch.bfloat16),
    "gptq": (LLAMA, True, torch.float16), "awq": (QWEN2, False, torch.float16),
}  # fmt: skip


@pytest.mark.parametrize("source", PLAIN)
def test_bf16(source, tmp_path):
    """Every weight is rounded once: vLLM's own kernels for 4 bits round the scales first."""
    _, out = pair(tmp_path, source, "bf16")
    assert generate(out) == generate(write_plain(tmp_path / "plain", *PLAIN[source]))


NOT_RUN = [
    ("ct-asymmetric", "gptq", "Unsupported quantization config: bits=4, sym=False"),
    ("awq", "gptq-v2", "Unsupported quantization config: bits=4, sym=False"),
    ("awq", "auto-round-v2", "Unsupported packing_format: auto_round:gptqmodel"),
    # transformers' names of scales are not vLLM's, where a matrix has one.
    ("fp8-static", "fp8", "no module or parameter named .*scale"),
]


@pytest.mark.parametrize(("source", "target", "message"), NOT_RUN)
def test_what_vllm_does_not_run_on_cpus(source, target, message, tmp_path):
    _, out = pair(tmp_path, source, target)
    with pytest.raises(Exception, match=message):
        generate(out)


@pytest.mark.skipif(torch.cpu._is_amx_tile_supported(), reason="this CPU has AMX")
@pytest.mark.parametrize(("source", "target"), BLOCKS)
def test_fp8_in_blocks_needs_amx(source, target, tmp_path):
    source, out = pair(tmp_path, source, target)
    for folder in (source, out):
        with pytest.raises(Exception, match="requires AMX tile support"):
            generate(folder)
