"""The other ops in whole engines, against vLLM's own path, which has to be led to them.

vLLM chooses some of them on an AMX machine only, and zentorch's on an AMD CPU with AVX-512 only.
The choice is forced; packing and computing are vLLM's own.
"""

from types import SimpleNamespace

import pytest
from conftest import convert
from engine import generate
from quantized import bytes_config, fp8_config, quantize_bytes, quantize_fp8
from tiny_models import LLAMA, QWEN2, write_bytes, write_quantized
from vllm.model_executor.kernels.linear.mixed_precision import zentorch as zentorch_4_bits
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm
from vllm.model_executor.kernels.linear.scaled_mm import zentorch as zentorch_8_bits

from prepack_vllm import platform


@pytest.fixture
def zen(monkeypatch):
    """vLLM's linear kernels for zentorch, and nothing else of it: the rest has no stand-ins."""
    cpu = SimpleNamespace(is_cpu=lambda: True, is_zen_cpu=lambda: True)
    for module in (zentorch_4_bits, zentorch_8_bits):
        monkeypatch.setattr(module, "current_platform", cpu)
        monkeypatch.setattr(module, "has_zentorch_op", lambda names: True)
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)


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


def test_int8_vnni(tmp_path, standins, monkeypatch):
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(True))
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    actual = generate(packed)
    monkeypatch.setattr(scaled_mm, "check_cpu_sgl_kernel", lambda n, k, dtype: True)
    assert actual == generate(source)


def test_int8_plain_through_onednn(tmp_path):
    """The real op on both sides, whatever the CPU."""
    source = write_bytes(tmp_path / "source", QWEN2, quantize_bytes, bytes_config(False))
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    assert generate(packed) == generate(source)


def test_fp8_vnni(tmp_path, standins, monkeypatch):
    source = write_bytes(
        tmp_path / "source",
        LLAMA,
        lambda weight: quantize_fp8(weight, 64, 128),
        fp8_config(64, 128),
    )
    packed = convert(source, tmp_path / "packed", "--target", "vllm-cpu")
    actual = generate(packed)
    for kernel in (scaled_mm.CPUFp8BlockScaledMMKernel,):
        monkeypatch.setattr(kernel, "is_supported", classmethod(lambda cls, _=None: (True, None)))
    assert actual == generate(source)
