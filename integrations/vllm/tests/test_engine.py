"""vLLM on source and packed folder: the same tokens and the same logprobs, to the last bit.

Both run the same op, real or stand-in; what is tested is that it gets the same bytes.
"""

import contextlib

import pytest
import torch
from conftest import convert
from engine import generate
from tiny_models import LLAMA, QWEN2, write_quantized

CASES = {
    "ct_symmetric_g32_llama": (LLAMA, "ct", 32, True),
    "ct_asymmetric_g128_qwen2": (QWEN2, "ct", 128, False),
    "gptq_symmetric_g32_qwen2": (QWEN2, "gptq", 32, True),
    "awq_asymmetric_g32_llama": (LLAMA, "awq", 32, False),
    "auto_round_symmetric_g128_llama": (LLAMA, "auto-round", 128, True),
}


@contextlib.contextmanager
def amx_at_load(monkeypatch):
    """vLLM packs for 8-bit activations where there is AMX; its op runs without, too."""
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel

    process = CPUWNA16LinearKernel.process_weights_after_loading

    def with_amx(self, layer):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
            process(self, layer)

    with monkeypatch.context() as patch:
        patch.setattr(CPUWNA16LinearKernel, "process_weights_after_loading", with_amx)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Sources and what vLLM generated from them, made once."""
    return tmp_path_factory.mktemp("engine")


@pytest.mark.parametrize("case", CASES)
def test_wna16_is_bit_equal_to_vllms_own_path(case, folders, standins):
    model, form, group_size, symmetric = CASES[case]
    source = write_quantized(folders / case, model, form, group_size, symmetric)
    packed = convert(source, folders / f"{case}-packed", "--target", "vllm-cpu")
    assert generate(packed) == generate(source)


@pytest.mark.parametrize("case", ["ct_symmetric_g32_llama", "ct_asymmetric_g128_qwen2"])
def test_int4_w4a8_is_bit_equal_to_vllms_own_path(case, folders, standins, monkeypatch):
    model, form, group_size, symmetric = CASES[case]
    source = write_quantized(folders / f"{case}-w4a8", model, form, group_size, symmetric)
    options = ("--target", "vllm-cpu", "--scheme", "w4a8")
    packed = convert(source, folders / f"{case}-w4a8-packed", *options)
    with amx_at_load(monkeypatch):
        expected = generate(source)
    assert generate(packed) == expected
