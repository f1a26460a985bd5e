"""Head and attention that no quantizer touched, packed with `--fuse`, in whole engines.

vLLM takes the op for small weights on AMX machines. Led to it here, its own path gives the same
tokens and logprobs, to the last bit. oneDNN, its choice on this CPU, adds up products in another order.
"""

import dataclasses

import pytest
import torch
from conftest import convert
from engine import generate
from gpt_oss import GptOss, write_gpt_oss
from loaded import in_mapped_files
from own_path import take_mxfp4_experts, take_plain
from tiny_models import LLAMA, write_quantized

from prepack_vllm import heads
from prepack_vllm.checks import check_folder
from prepack_vllm.layouts import vnni

pytestmark = pytest.mark.without_zentorch

# So wide that head and attention are 1 MiB, from which on they are packed.
WIDE = dataclasses.replace(LLAMA, hidden=2048)
WIDE_GPT_OSS = GptOss(hidden=2048)
ATTENTION = "model.layers.0.self_attn"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    source = write_quantized(folder / "source", WIDE, "ct", 32, True)
    return source, convert(source, folder / "packed", "--target", "vllm-cpu", "--fuse")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain-gpt-oss")
    source = write_gpt_oss(folder / "source", WIDE_GPT_OSS)
    return source, convert(source, folder / "packed", "--target", "vllm-cpu", "--fuse")


@pytest.fixture
def own_op(monkeypatch):
    """vLLM's own path, led to the op for weights of 1 MiB and more."""

    def led(source):
        with monkeypatch.context() as patch:
            take_plain(patch)
            take_mxfp4_experts(patch.setattr)
            return generate(source)

    return led


def lack_the_op(monkeypatch):
    """As in vLLM's library for AVX2."""
    there = heads.has_op
    for module in (heads, vnni):
        monkeypatch.setattr(
            module, "has_op", lambda name: name not in vnni.Bf16Vnni.ops and there(name)
        )


def packed_in_blocks(folder):
    modules = check_folder(folder).modules
    return {name for name, one in modules.items() if one.layout == "vllm-cpu/bf16-vnni"}


def test_a_head(llama, standins, own_op):
    source, packed = llama
    assert packed_in_blocks(packed) == {"lm_head"}
    places = []
    actual = generate(
        packed, inspect=lambda model: places.append(in_mapped_files(model.lm_head.weight))
    )
    assert actual == own_op(source)
    assert places == [True]


def test_a_head_and_an_attention_of_gpt_oss(gpt_oss, standins, own_op):
    """Its class makes the head without asking for a method."""
    source, packed = gpt_oss
    layers = [f"model.layers.{layer}.self_attn.{name}" for layer in range(2) for name in
              ("qkv_proj", "o_proj")]  # fmt: skip
    assert packed_in_blocks(packed) == {"lm_head", *layers}
    places = {}

    def look(model):
        attention = model.model.layers[0].attn
        for name, layer in [("head", model.lm_head), ("qkv", attention.qkv_proj),
                            ("o", attention.o_proj)]:  # fmt: skip
            places[name] = in_mapped_files(layer.weight)

    assert generate(packed, inspect=look) == own_op(source)
    assert places == {"head": True, "qkv": True, "o": True}


def test_they_are_copied_on_demand(llama, own_op, monkeypatch):
    source, packed = llama
    expected = own_op(source)
    monkeypatch.setenv("PREPACK_VLLM_COPY", "1")
    places = []
    actual = generate(
        packed, inspect=lambda model: places.append(in_mapped_files(model.lm_head.weight))
    )
    assert (actual, places) == (expected, [False])


def test_without_the_op_they_are_unpacked(llama, gpt_oss, monkeypatch):
    source, packed = llama
    expected = generate(source)
    lack_the_op(monkeypatch)
    assert generate(packed) == expected


def test_attention_without_the_op_has_plain_weights(gpt_oss, monkeypatch):
    lack_the_op(monkeypatch)
    module = check_folder(gpt_oss[1]).modules[f"{ATTENTION}.o_proj"]
    geometry, _ = heads.module_parts(module, check_folder(gpt_oss[1]))
    plain = torch.randn(geometry.n, geometry.k).bfloat16()
    n, k = plain.shape
    blocks = plain.view(n // 32, 32, k // 2, 2).transpose(1, 2).contiguous().view(n, k)
    kernel = vnni.Bf16Vnni(geometry, {"weight": blocks})
    assert kernel.holds_weights_itself()
    x, bias = torch.randn(3, k).bfloat16(), torch.randn(n)
    expected = torch.nn.functional.linear(x, plain, bias.bfloat16())
    assert torch.equal(kernel(x, bias), expected)


def test_two_ranks_have_vllms_own_head(llama, monkeypatch):
    source, packed = llama
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    assert generate(packed, tensor_parallel_size=2) == generate(source, tensor_parallel_size=2)


def test_compiled(llama, own_op, monkeypatch):
    source, packed = llama
    with monkeypatch.context() as patch:
        take_plain(patch)
        expected = generate(source, enforce_eager=False)
    assert generate(packed, enforce_eager=False) == expected
