"""Layers of experts in MXFP4 without an engine, as gpt-oss stores them and with gate and up apart."""

import dataclasses
import shutil

import pytest
import torch
from conftest import convert
from expert_layers import LAYER, MODEL, config_for, create, moe_config
from folders import edit_manifest
from gpt_oss import GptOss, write_gpt_oss
from mxfp4 import write_mxfp4
from safetensors import safe_open
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.linear import ReplicatedLinear

from prepack_vllm.checks import check_folder
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.geometry import geometry_of
from prepack_vllm.reference import weights

GPT_OSS = GptOss(layers=1)


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory):
    root = tmp_path_factory.mktemp("mxfp4")
    source = write_gpt_oss(root / "source", GPT_OSS)
    return convert(source, root / "packed", "--target", "vllm-cpu")


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    root = tmp_path_factory.mktemp("mxfp4")
    source = write_mxfp4(root / "source", MODEL, "ct")
    return convert(source, root / "packed", "--target", "vllm-cpu")


def moe_of_gpt_oss(tp_size=1, tp_rank=0, **changes):
    fields = {
        "hidden_dim": GPT_OSS.hidden, "intermediate_size": GPT_OSS.inner, "has_bias": True,
        "activation": MoEActivation.SWIGLUOAI,
    }  # fmt: skip
    return moe_config(tp_size, tp_rank, **(fields | changes))


def load(layer, folder):
    """As vLLM's class for gpt-oss does it, under the names that it is given."""
    mapper = layer.quant_method.mapper
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        for name in file.keys():
            _, found, expert = mapper.map_name(name).partition(f"{LAYER}.")
            if not found:
                continue
            index, parameter = expert.split(".")
            shard = "gpt_oss_" + parameter.partition("_")[0]
            one = getattr(layer, parameter)
            assert one.weight_loader(one, file.get_tensor(name), name, shard, int(index), True)


def create_for_gpt_oss(folder, moe=None):
    config = config_for(folder)
    layer = create(config, moe or moe_of_gpt_oss())
    layer.quant_method.mapper = config.get_checkpoint_weight_mapper()
    layer.quant_method.on_loaded = lambda: None
    return layer


def whole(folder, name):
    """Weights and bias of a module."""
    manifest = check_folder(folder)
    module = manifest.modules[f"{LAYER}.{name}"]
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        parts = {part: file.get_tensor(entry.name) for part, entry in module.parts.items()}
    geometry = geometry_of(module, manifest.activation_dtype)
    return torch.from_numpy(weights(module.layout, geometry, parts)), parts.get("bias")


def held(layer, stack, expert):
    names = [loader.part.name for loader in stack.loaders]
    parts = {name: getattr(layer, f"{stack.prefix}_{name}")[expert] for name in names}
    return torch.from_numpy(weights("vllm-cpu/mxfp4", stack.geometry, parts)), parts.get("bias")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_holds_its_share_of_every_expert(gpt_oss, standins, ranks):
    inner = GPT_OSS.inner // ranks
    for rank in range(ranks):
        layer = create_for_gpt_oss(gpt_oss, moe_of_gpt_oss(ranks, rank))
        load(layer, gpt_oss)
        w13, w2 = layer.quant_method.stacks
        share = slice(rank * inner, (rank + 1) * inner)
        rows = slice(2 * rank * inner, 2 * (rank + 1) * inner)
        for expert in range(GPT_OSS.experts):
            weight, bias = whole(gpt_oss, f"gate_up_proj.{expert}")
            actual, actual_bias = held(layer, w13, expert)
            assert torch.equal(actual, weight[rows]) and torch.equal(actual_bias, bias[rows])
            weight, bias = whole(gpt_oss, f"down_proj.{expert}")
            actual, actual_bias = held(layer, w2, expert)
            assert torch.equal(actual, weight[:, share])
            # The outputs of ranks are added up.
            assert torch.equal(actual_bias, bias if rank == 0 else torch.zeros_like(bias))


def test_the_op_computes_what_the_layer_is(gpt_oss, standins):
    """Against plain arithmetic in f64 with the weights that the parts of each expert hold."""
    layer = create_for_gpt_oss(gpt_oss)
    load(layer, gpt_oss)
    method = layer.quant_method
    method.process_weights_after_loading(layer)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(9, GPT_OSS.hidden, generator=generator).to(torch.bfloat16)
    logits = torch.randn(9, GPT_OSS.experts, generator=generator)
    topk_weights, topk_ids = logits.softmax(1).topk(2)
    actual = method.apply(layer, x, topk_weights, topk_ids.int(), None, None)
    expected = torch.zeros(9, GPT_OSS.hidden, dtype=torch.float64)
    for expert in range(GPT_OSS.experts):
        w13, b13 = whole(gpt_oss, f"gate_up_proj.{expert}")
        w2, b2 = whole(gpt_oss, f"down_proj.{expert}")
        y = x.double() @ w13.T + b13
        gate, up = y[:, 0::2].clamp(max=7), y[:, 1::2].clamp(-7, 7)
        share = (topk_weights * (topk_ids == expert)).sum(1, keepdim=True)
        expected += share * (gate * torch.sigmoid(1.702 * gate) * (up + 1) @ w2.T + b2)
    noise = (actual.double() - expected).square().sum()
    assert 10 * torch.log10(expected.square().sum() / noise) > 40


def test_a_part_that_does_not_come_is_named(gpt_oss, standins):
    layer = create_for_gpt_oss(gpt_oss)
    load(layer, gpt_oss)
    method = layer.quant_method
    bias = method.stacks[1].loaders[-1]
    bias.loaded.discard(("w2", 3))
    with pytest.raises(Malformed, match=f"{LAYER}.down_proj.3: part bias was not loaded"):
        method.process_weights_after_loading(layer)


def test_rows_that_alternate_go_with_one_activation(gpt_oss, apart, standins):
    with pytest.raises(Unsupported, match="apart, and the activation is swigluoai"):
        create(config_for(apart), moe_config(activation=MoEActivation.SWIGLUOAI))
    # Else they may be halves.
    with pytest.raises(Unsupported, match="is none that vLLM's experts consist of"):
        create(config_for(gpt_oss), moe_of_gpt_oss(activation=MoEActivation.SILU))


def test_a_limit_without_that_activation(apart, standins):
    """The op ignores it."""
    create(config_for(apart))
    with pytest.raises(Unsupported, match="the model cuts activations off at 7.0"):
        create(config_for(apart), moe_config(swiglu_limit=7.0))


def test_a_model_without_biases(gpt_oss, apart, standins):
    with pytest.raises(Unsupported, match="the model's experts have none"):
        create(config_for(gpt_oss), moe_of_gpt_oss(has_bias=False))
    with pytest.raises(Unsupported, match="have biases, and the packed ones none"):
        create(config_for(apart), moe_config(has_bias=True))


def test_too_many_ranks(gpt_oss, standins):
    with pytest.raises(Unsupported, match="a rank would hold 48 input channels, but weight can be"):
        create(config_for(gpt_oss), moe_of_gpt_oss(4))


def test_a_model_of_another_shape(gpt_oss, standins):
    with pytest.raises(Malformed, match="gate_up_proj.0: .*found N = 384, .* expected N = 256"):
        create(config_for(gpt_oss), moe_of_gpt_oss(intermediate_size=128))


@pytest.mark.parametrize("name", ["gate_up_proj.2", "down_proj.3"])
def test_a_missing_expert_is_named(gpt_oss, standins, tmp_path, name):
    folder = shutil.copytree(gpt_oss, tmp_path / "folder")
    edit_manifest(folder, lambda document: document["modules"].pop(f"{LAYER}.{name}"))
    with pytest.raises(Malformed, match=f"{LAYER}.{name}: the expert is missing, and others"):
        check_folder(folder)


def test_no_linear_layer_is_in_mxfp4(gpt_oss, standins):
    config = config_for(gpt_oss)
    name = "model.layers.0.self_attn.o_proj"
    module = config.modules[f"{LAYER}.down_proj.0"]
    config.modules[name] = dataclasses.replace(module, name=name)
    layer = ReplicatedLinear.__new__(ReplicatedLinear)
    with pytest.raises(Unsupported, match="o_proj: vLLM has no op for linear layers in vllm-cpu/m"):
        config.get_quant_method(layer, name)
