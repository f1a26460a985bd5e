"""Experts that are stored stacked (`--fuse`), in whole engines, against vLLM's own path: the same
tokens and the same bytes, and none of them copied."""

import pytest
import torch
from conftest import convert
from engine import generate
from expert_stacks import assert_same_experts
from gpt_oss import write_gpt_oss
from loaded import in_mapped_files
from own_path import (
    OWN_PATH_VARIABLE,
    take_fp8_blocks,
    take_int8,
    take_mxfp4_experts,
    take_zentorch,
)
from quantized import bytes_config, quantize_bytes
from tiny_models import MIXTRAL, QWEN3_MOE, write_bytes, write_fp8, write_quantized
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.experts import cpu_moe, zentorch_moe


@pytest.fixture
def own_path(monkeypatch):
    """vLLM's classes for the ops of its own library, wherever these run."""
    for cls in (cpu_moe.CPUExpertsInt4, cpu_moe.CPUExpertsInt8, cpu_moe.CPUExpertsFp8):
        monkeypatch.setattr(cls, "_supports_current_device", staticmethod(lambda: True))


def pack(source, tmp_path, target="vllm-cpu", *options):
    return convert(source, tmp_path / "stacked", "--target", target, "--fuse", *options)


def assert_mapped(folder):
    """No weight, scale, zero point or bias of an expert lies in memory of the process's own."""
    held = {}

    def look(model):
        for name, layer in model.named_modules():
            if isinstance(layer, RoutedExperts):
                parts = {f"{name}.{part}": one.data for part, one in layer.named_parameters()}
                held.update({part: in_mapped_files(one) for part, one in parts.items()})

    generate(folder, inspect=look)
    assert held and all(held.values()), held


CASES = {
    "qwen3_moe": (QWEN3_MOE, "ct", 64, True),
    "mixtral": (MIXTRAL, "ct", 128, True),
    "mixtral_asymmetric": (MIXTRAL, "awq", 32, False),
}


@pytest.mark.without_zentorch
@pytest.mark.parametrize("case", CASES)
def test_int4_w4a8(case, tmp_path, standins, own_path):
    model, form, group_size, symmetric = CASES[case]
    source = write_quantized(tmp_path / "source", model, form, group_size, symmetric)
    packed = pack(source, tmp_path)
    assert_same_experts(packed, source)
    assert_mapped(packed)


@pytest.mark.without_zentorch
def test_int8_vnni(tmp_path, standins, own_path, monkeypatch):
    source = write_bytes(tmp_path / "source", QWEN3_MOE, quantize_bytes, bytes_config(True))
    packed = pack(source, tmp_path)
    take_int8(monkeypatch)
    assert_same_experts(packed, source)
    assert_mapped(packed)


@pytest.mark.without_zentorch
def test_fp8_vnni(tmp_path, standins, own_path, monkeypatch):
    source = write_fp8(tmp_path / "source", QWEN3_MOE, 128, 128)
    packed = pack(source, tmp_path)
    take_fp8_blocks(monkeypatch)
    assert_same_experts(packed, source)
    assert_mapped(packed)


def test_mxfp4(tmp_path, standins, monkeypatch):
    take_mxfp4_experts(monkeypatch.setattr)
    source = write_gpt_oss(tmp_path / "source")
    packed = pack(source, tmp_path)
    assert_same_experts(packed, source)
    assert_mapped(packed)


def test_zentorch_da8w4(tmp_path, standins, monkeypatch):
    take_zentorch(monkeypatch, zentorch_moe, cpu_moe)
    source = write_quantized(tmp_path / "source", QWEN3_MOE, "ct", 64, True)
    packed = pack(source, tmp_path, "zentorch", "--scheme", "w4a8")
    assert_same_experts(packed, source)


def test_zentorch_int8(tmp_path, standins, monkeypatch):
    take_zentorch(monkeypatch, zentorch_moe, cpu_moe)
    source = write_bytes(tmp_path / "source", QWEN3_MOE, quantize_bytes, bytes_config(True))
    packed = pack(source, tmp_path, "zentorch")
    assert_same_experts(packed, source, same_scales=False)


@pytest.mark.without_zentorch
def test_everything_is_copied_on_demand(tmp_path, standins, own_path, monkeypatch):
    source = write_quantized(tmp_path / "source", QWEN3_MOE, "ct", 64, True)
    packed = pack(source, tmp_path)
    expected = generate(packed)
    monkeypatch.setenv("PREPACK_VLLM_COPY", "1")
    copied = []
    assert generate(packed, inspect=lambda model: copied.extend(
        not in_mapped_files(one) for name, one in model.named_parameters() if "w13" in name
    )) == expected  # fmt: skip
    assert copied and all(copied)


def test_two_ranks_have_the_shares_of_experts_by_themselves(tmp_path, monkeypatch):
    """Packed one by one and stacked: the same numbers on each rank, so the same outputs."""
    source = write_quantized(tmp_path / "source", MIXTRAL, "ct", 64, True)
    options = ("--scheme", "experts=w4a8")
    apart = convert(source, tmp_path / "apart", "--target", "vllm-cpu", *options)
    stacked = pack(source, tmp_path, "vllm-cpu", *options)
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    expected = generate(apart, tensor_parallel_size=2)
    assert generate(stacked, tensor_parallel_size=2) == expected
    one = torch.tensor(sum(generate(stacked).prompt_logprobs, []))
    two = torch.tensor(sum(expected.prompt_logprobs, []))
    assert (one - two).abs().mean() < 0.1


def test_gpt_oss_on_two_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv(OWN_PATH_VARIABLE, "mxfp4")  # for the processes of further ranks
    take_mxfp4_experts(monkeypatch.setattr)
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    source = write_gpt_oss(tmp_path / "source")
    expected = generate(source, tensor_parallel_size=2)
    assert generate(pack(source, tmp_path), tensor_parallel_size=2) == expected
