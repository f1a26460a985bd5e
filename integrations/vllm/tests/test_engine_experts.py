"""Mixtures of experts in whole engines, against vLLM's own path, and the bytes of both.

vLLM takes its ops for experts on an AMX machine only; it is led to them, as own_path.py says.
"""

import shutil

import pytest
import torch
from conftest import convert
from engine import generate
from expert_stacks import Stacks, assert_same_experts
from folders import keep
from own_path import take_fp8_blocks, take_int8, take_zentorch
from quantized import bytes_config, quantize_bytes
from tiny_models import MIXTRAL, PROJECTIONS, QWEN3_MOE, write_bytes, write_fp8, write_quantized
from vllm.model_executor.layers.fused_moe.experts import cpu_moe, zentorch_moe

INT4 = {
    "ct_symmetric_g64_qwen3_moe": (QWEN3_MOE, "ct", 64, True),
    "ct_symmetric_g128_mixtral": (MIXTRAL, "ct", 128, True),
    "gptq_symmetric_g64_mixtral": (MIXTRAL, "gptq", 64, True),
    "awq_asymmetric_g32_mixtral": (MIXTRAL, "awq", 32, False),
}
W4A8_EXPERTS = ("--scheme", "experts=w4a8")


@pytest.fixture
def own_path(monkeypatch):
    """vLLM's classes for the ops of its own library, wherever these run."""
    for cls in (cpu_moe.CPUExpertsInt4, cpu_moe.CPUExpertsInt8, cpu_moe.CPUExpertsFp8):
        monkeypatch.setattr(cls, "_supports_current_device", staticmethod(lambda: True))


@pytest.fixture
def zen(monkeypatch):
    take_zentorch(monkeypatch, zentorch_moe, cpu_moe)


@pytest.mark.without_zentorch
@pytest.mark.parametrize("case", INT4)
def test_int4_w4a8(case, tmp_path, standins, own_path):
    model, form, group_size, symmetric = INT4[case]
    source = write_quantized(tmp_path / "source", model, form, group_size, symmetric)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu", *W4A8_EXPERTS)
    assert_same_experts(packed, source)


@pytest.mark.without_zentorch
def test_int8_vnni(tmp_path, standins, own_path, monkeypatch):
    source = write_bytes(tmp_path / "source", QWEN3_MOE, quantize_bytes, bytes_config(True))
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    take_int8(monkeypatch)
    assert_same_experts(packed, source)


@pytest.mark.without_zentorch
def test_fp8_vnni(tmp_path, standins, own_path, monkeypatch):
    source = write_fp8(tmp_path / "source", QWEN3_MOE, 128, 128)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    take_fp8_blocks(monkeypatch)
    assert_same_experts(packed, source)


def test_zentorch_da8w4(tmp_path, standins, zen):
    source = write_quantized(tmp_path / "source", QWEN3_MOE, "ct", 64, True)
    packed = convert(source, tmp_path / "packed", "--target", "zentorch", "--scheme", "w4a8")
    assert_same_experts(packed, source)


def test_zentorch_int8(tmp_path, standins, zen):
    source = write_bytes(tmp_path / "source", QWEN3_MOE, quantize_bytes, bytes_config(True))
    packed = convert(source, tmp_path / "packed", "--target", "zentorch")
    # The scales are stored in bf16, and become f32 when the op's class is made.
    assert_same_experts(packed, source, same_scales=False)


@pytest.fixture
def qwen3_moe(tmp_path):
    source = write_quantized(tmp_path / "source", QWEN3_MOE, "ct", 64, True)
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu", *W4A8_EXPERTS)
    return source, packed


@pytest.mark.without_zentorch
def test_kept_experts_go_vllms_own_way(qwen3_moe, tmp_path, standins, own_path):
    source, packed = qwen3_moe
    folder = shutil.copytree(packed, tmp_path / "kept")
    keep(folder, source, tuple(f".{name}" for name in PROJECTIONS))
    stacks = Stacks()
    assert generate(folder, inspect=stacks) == generate(source)
    assert len(stacks.layers) == 2 and not stacks.ours


@pytest.mark.without_zentorch
def test_two_ranks(qwen3_moe, monkeypatch):
    """vLLM's own path cannot be forced in its workers. The ranks quantize activations of down by
    halves, so that the outputs are nearly those of one rank."""
    _, packed = qwen3_moe
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    one = torch.tensor(sum(generate(packed).prompt_logprobs, []))
    two = torch.tensor(sum(generate(packed, tensor_parallel_size=2).prompt_logprobs, []))
    assert (one - two).abs().mean() < 0.1
