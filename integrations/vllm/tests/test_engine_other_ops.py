"""The other ops in whole engines, against vLLM's own path, which has to be led to them."""

import pytest
from conftest import convert
from engine import generate
from own_path import take_fp8_blocks, take_int8, take_zentorch
from quantized import bytes_config, quantize_bytes
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
