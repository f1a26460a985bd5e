"""On CPUs with AMX: what vLLM takes by itself there, against packed folders. Nothing leads it."""

import pytest
import torch
from conftest import convert
from engine import generate
from expert_stacks import assert_same_experts
from quantized import bytes_config, fp8_channels_config, quantize_bytes, quantize_fp8_channels
from tiny_models import LLAMA, QWEN2, QWEN3_MOE, write_bytes, write_fp8, write_quantized
from vllm import _custom_ops
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm

pytestmark = [
    pytest.mark.without_zentorch,
    pytest.mark.skipif(
        not torch.cpu._is_amx_tile_supported(), reason="this CPU has no AMX, which the test needs"
    ),
]
W4A8 = ("--target", "vllm-cpu", "--scheme", "w4a8")  # as vLLM runs 4 bits there, unless told otherwise
fp8_activations = pytest.mark.skipif(
    _custom_ops.cpu_has_amx_fp8(), reason="vLLM quantizes activations to FP8 on this CPU"
)


@pytest.mark.parametrize("symmetric", [True, False])
def test_4_bits_run_with_8_bit_activations(symmetric, tmp_path):
    source = write_quantized(tmp_path / "source", LLAMA, "ct", 32, symmetric)
    assert generate(convert(source, tmp_path / "packed", *W4A8)) == generate(source)


def test_4_bits_with_16_bit_activations(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_INT4_W4A8", "0")
    source = write_quantized(tmp_path / "source", LLAMA, "ct", 32, True)
    assert generate(convert(source, tmp_path / "packed", "--target", "vllm-cpu")) == generate(source)


def test_int8(tmp_path):
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(True))
    assert generate(convert(source, tmp_path / "packed", "--target", "vllm-cpu")) == generate(source)


@fp8_activations
def test_fp8_in_blocks(tmp_path):
    source = write_fp8(tmp_path / "source", LLAMA, 64, 128)
    assert generate(convert(source, tmp_path / "packed", "--target", "vllm-cpu")) == generate(source)


@fp8_activations
@pytest.mark.skipif(
    not hasattr(scaled_mm, "CPUFp8ChannelWiseScaledMMLinearKernel"),
    reason="this version of vLLM dequantizes weights with scales per channel",
)
def test_fp8_with_scales_per_channel(tmp_path):
    config = fp8_channels_config(True)
    source = write_bytes(tmp_path / "source", LLAMA, quantize_fp8_channels, config)
    assert generate(convert(source, tmp_path / "packed", "--target", "vllm-cpu")) == generate(source)


def test_experts_in_4_bits(tmp_path):
    source = write_quantized(tmp_path / "source", QWEN3_MOE, "ct", 64, True)
    assert_same_experts(convert(source, tmp_path / "packed", *W4A8), source)


def test_experts_in_int8(tmp_path):
    source = write_bytes(tmp_path / "source", QWEN3_MOE, quantize_bytes, bytes_config(True))
    assert_same_experts(convert(source, tmp_path / "packed", "--target", "vllm-cpu"), source)


@fp8_activations
def test_experts_in_fp8(tmp_path):
    source = write_fp8(tmp_path / "source", QWEN3_MOE, 128, 128)
    assert_same_experts(convert(source, tmp_path / "packed", "--target", "vllm-cpu"), source)
