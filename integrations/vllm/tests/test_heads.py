"""Heads in blocks of bf16, and what is refused about them; no engine."""

from types import SimpleNamespace

import pytest
import torch
from vllm.model_executor.layers.quantization import get_quantization_config

from prepack_vllm.collector import old_objects_left_out
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.heads import PackedHeadMethod, take_heads
from prepack_vllm.layouts.vnni import unpack_vnni

N, K = 128, 64


def method(dtype="BF16"):
    manifest = SimpleNamespace(activation_dtype=dtype)
    module = SimpleNamespace(
        name="lm_head", n=N, k=K, parts={"weight": SimpleNamespace(name="lm_head.weight")}
    )
    return PackedHeadMethod(manifest, module, lambda: None)


def head(rows=N, columns=K, vocabulary=N):
    layer = torch.nn.Module()
    layer.org_vocab_size = vocabulary
    layer.weight = torch.nn.Parameter(
        torch.zeros(rows, columns, dtype=torch.bfloat16), requires_grad=False
    )
    layer.weight.weight_loader = lambda parameter, stored: parameter[: len(stored)].copy_(stored)
    return layer


def packed(plain):
    n, k = plain.shape
    return plain.view(n // 32, 32, k // 2, 2).transpose(1, 2).contiguous().view(n, k)


def test_unpacking_is_the_inverse_of_packing():
    plain = torch.arange(N * K).view(N, K)
    assert torch.equal(unpack_vnni(packed(plain)), plain)
    # n = 33, k = 5: block 1, pair 2, channel 1, second of the pair.
    assert packed(plain).reshape(-1)[32 * K + 2 * 64 + 1 * 2 + 1] == plain[33, 5]


def test_a_whole_head_is_the_tensor_itself():
    layer, one = head(), method()
    one.take_over(layer)
    stored = torch.randn(N, K).bfloat16()
    assert list(one.mapped_tensors()) == ["lm_head.weight"]
    layer.weight.weight_loader(layer.weight, stored)
    assert layer.weight.data_ptr() == stored.data_ptr()


def test_a_padded_head_is_unpacked():
    layer, one = head(rows=N + 64), method()
    one.take_over(layer)
    assert list(one.mapped_tensors()) == []
    plain = torch.randn(N, K).bfloat16()
    layer.weight.weight_loader(layer.weight, packed(plain))
    assert torch.equal(layer.weight[:N], plain)


def test_a_head_that_never_came():
    layer, one = head(), method()
    one.take_over(layer)
    with pytest.raises(Malformed, match="lm_head: part weight was not loaded"):
        one.process_weights_after_loading(layer)


def test_a_head_of_another_shape():
    with pytest.raises(Malformed, match="lm_head: the model's layer has another shape"):
        method().take_over(head(vocabulary=N - 1))
    with pytest.raises(Malformed, match=f"found N = {N}, K = {K}, expected N = {N}, K = {2 * K}"):
        method().take_over(head(columns=2 * K))


def test_a_head_of_another_dtype():
    with pytest.raises(Unsupported, match="lm_head: the folder was packed for activations of"):
        method("F16").take_over(head())


def test_a_config_of_another_method_takes_no_head():
    model = torch.nn.Module()
    take_heads(model, get_quantization_config("gptq"))
    take_heads(model, None)


def test_the_collector_is_as_before():
    import gc

    with old_objects_left_out():
        assert gc.get_freeze_count() > 0
        with old_objects_left_out():  # somebody else has left out objects
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
