"""The other ops in whole engines, against vLLM's own path, which has to be led to them."""

import pytest
import torch
from conftest import convert
from engine import generate
from own_path import take_fp8_blocks, take_int8, take_zentorch
from quantized import (
    bytes_config,
    fp8_channels_config,
    quantize_bytes,
    quantize_fp8_channels,
)
from tiny_models import LLAMA, QWEN2, write_bytes, write_fp8, write_quantized


@pytest.fixture
def zen(monkeypatch):
    take_zentorch(monkeypatch)


def test_zentorch_woq(tmp_path, standins, zen):
    source = write_quantized(tmp_path / "source", QWEN2, "ct", 32, False)
    packed = convert(source, tmp_path / "packed", "--target", "zentorch")
    assert generate(packed) == generate(source)


def test_zentorch_da8w4(tmp_path, standins, zen):
    source = write_quantized(tmp_path / "source", QWEN2, "ct", 128, True)
    packed = convert(source, tmp_path / "packed", "--target", "zentorch", "--scheme", "w4a8")
    assert generate(packed) == generate(source)


def test_zentorch_int8(tmp_path, standins, zen):
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(True))
    packed = convert(source, tmp_path / "packed", "--target", "zentorch")
    assert generate(packed) == generate(source)


@pytest.mark.without_zentorch
def test_int8_vnni(tmp_path, standins, monkeypatch):
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(True))
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    actual = generate(packed)
    take_int8(monkeypatch)
    assert actual == generate(source)


@pytest.mark.without_zentorch
def test_int8_plain_through_onednn(tmp_path):
    """The real op on both sides, whatever the CPU."""
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(False))
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    assert generate(packed) == generate(source)


@pytest.mark.without_zentorch
def test_fp8_vnni(tmp_path, standins, monkeypatch):
    source = write_fp8(tmp_path / "source", LLAMA, 64, 128)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    actual = generate(packed)
    take_fp8_blocks(monkeypatch)
    assert actual == generate(source)


def dequantized(weight):
    parts = quantize_fp8_channels(weight)
    return {"weight": (parts["weight"].float() * parts["weight_scale"]).to(torch.bfloat16)}


@pytest.mark.without_zentorch
@pytest.mark.parametrize("dynamic", [False, True])
def test_fp8_vnni_with_scales_per_channel(dynamic, tmp_path, standins):
    """vLLM itself runs none of the kind with activations as they are, and the other with FP8
    activations, which are far less exact."""
    config = fp8_channels_config(dynamic)
    source = write_bytes(tmp_path / "source", LLAMA, quantize_fp8_channels, config)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    plain = write_bytes(tmp_path / "plain", LLAMA, dequantized, None)
    actual = torch.tensor(sum(generate(packed).prompt_logprobs, []))
    difference = (actual - torch.tensor(sum(generate(plain).prompt_logprobs, []))).abs()
    assert difference.mean() < 0.1  # of some 40: the model is a random one
