"""Layers without an engine: what cannot be loaded is refused, with the module and the reason."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from conftest import convert
from folders import CHECKPOINTS
from vllm.model_executor import parameter as vllm_parameter
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.gpt2 import GPT2Model
from vllm.model_executor.models.utils import WeightsMapper

from prepack_vllm import loading
from prepack_vllm.checks import check_folder
from prepack_vllm.config import PrepackConfig
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.linear import PrepackLinearMethod

ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"
FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    """Parameters ask for their rank when they are made."""
    monkeypatch.setattr(vllm_parameter, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(vllm_parameter, "get_tensor_model_parallel_world_size", lambda: 1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("layers")
    made = {}

    def folder(checkpoint, *options):
        key = (checkpoint, *options)
        if key not in made:
            out = root / str(len(made))
            made[key] = convert(CHECKPOINTS / checkpoint, out, "--target", "vllm-cpu", *options)
        return made[key]

    return folder


def config_for(folder):
    config = PrepackConfig("vllm-cpu")
    config.maybe_update_config(str(folder))
    config.packed_modules_mapping = FUSED
    return config


def method_for(folder, *names):
    manifest = check_folder(folder)
    return PrepackLinearMethod(manifest, [manifest.modules[name] for name in names], lambda: None)


def plain_layer():
    layer = torch.nn.Module()
    layer.bias = None
    return layer


def copy(parameter, stored):
    parameter.data.copy_(stored)


def create(method, k, sizes, whole_k=None, whole_n=None, dtype=torch.bfloat16):
    layer = plain_layer()
    method.create_weights(
        layer, k, sizes, whole_k or k, whole_n or sum(sizes), dtype, weight_loader=copy
    )
    return layer


def of(cls, **attributes):
    """An object of a class of vLLM's, without what its constructor needs."""
    layer = cls.__new__(cls)
    torch.nn.Module.__init__(layer)
    vars(layer).update(attributes)
    return layer


QKV = [f"{ATTENTION}.{name}" for name in FUSED["qkv_proj"]]


def test_too_many_ranks_for_the_output_channels(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), *QKV)
    with pytest.raises(
        Unsupported, match=f"{QKV[0]}: .* hold 48 output channels, but weight can be cut at "
        r"multiples of 32 \(vllm-cpu/wna16\). Use less tensor parallelism",
    ):  # fmt: skip
        create(method, 384, [48, 16, 16], whole_n=640)


def test_too_many_ranks_for_the_input_channels(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj")
    with pytest.raises(
        Unsupported, match="192 input channels, but weight_scale can be cut at .* 128"
    ):
        create(method, 192, [384], whole_k=1536)


def test_sums_over_all_input_channels_cannot_be_cut(folders):
    method = method_for(folders("ct-w8a8-dynamic"), f"{MLP}.down_proj")
    with pytest.raises(
        Unsupported, match="768 input channels, but weight cannot be cut along these"
    ):
        create(method, 768, [384], whole_k=1536)


def test_an_order_of_input_channels_cannot_be_cut(folders):
    method = method_for(folders("gptqmodel-w4-actorder-g128"), f"{MLP}.down_proj")
    with pytest.raises(Unsupported, match="input_order cannot be cut along these"):
        create(method, 768, [384], whole_k=1536)


def test_a_rank_holds_its_share_of_every_part(folders):
    method = method_for(folders("ct-w4a16-g32-asym"), f"{MLP}.down_proj")
    layer = create(method, 768, [384], whole_k=1536)
    shapes = {name: list(parameter.shape) for name, parameter in layer.named_parameters()}
    assert shapes == {
        "weight": [24, 1536], "weight_scale": [24, 384], "weight_zero_point": [24, 48]
    }  # fmt: skip


def test_a_rank_that_holds_one_group_of_several(folders):
    layer = create(
        method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj"), 128, [384], whole_k=1536
    )
    stored = torch.arange(12.0).view(12, 1).expand(12, 384).to(torch.bfloat16)
    layer.weight_scale.tp_rank = 5
    layer.weight_scale.load_row_parallel_weight(stored)
    assert list(layer.weight_scale.shape) == [1, 384] and (layer.weight_scale == 5).all()


def test_activations_of_another_dtype(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj")
    with pytest.raises(Unsupported, match="another dtype .*float16.* --dtype bfloat16"):
        create(method, 1536, [384], dtype=torch.float16)


def test_a_model_of_another_shape(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj")
    with pytest.raises(Malformed, match=r"found N = 384, K = 1536, expected N = 384, K = 1024"):
        create(method, 1024, [384])


def test_a_part_that_does_not_come_is_named(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), *QKV)
    layer = create(method, 384, [384, 128, 128])
    layer.weight.weight_loader.loaded.update({"q", "k", "v"})
    layer.weight_scale.weight_loader.loaded.update({"q", "v"})
    with pytest.raises(Malformed, match=rf"{ATTENTION}.k_proj: part weight_scale was not loaded"):
        method.process_weights_after_loading(layer)


def test_a_bias_that_does_not_come_is_named(folders):
    method = method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj")
    layer = torch.nn.Module()
    layer.has_bias = True
    layer.weight_loader = copy
    method.create_weights(layer, 1536, [384], 1536, 384, torch.bfloat16, weight_loader=copy)
    layer.bias = torch.nn.Parameter(torch.zeros(384))
    for name in ("weight", "weight_scale"):
        getattr(layer, name).weight_loader.loaded.add(None)
    with pytest.raises(Malformed, match=f"{MLP}.down_proj: part bias was not loaded"):
        method.process_weights_after_loading(layer)


def test_a_part_of_another_dtype_is_not_converted(folders):
    layer = create(method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj"), 1536, [384])
    with pytest.raises(Malformed, match="part weight_scale is of another dtype"):
        layer.weight_scale.weight_loader(layer.weight_scale, torch.zeros(12, 384))


def test_a_bias_is_loaded_in_the_dtype_of_the_kernel(folders):
    folder = folders("ct-w4a16-g128-sym", "--scheme", "w4a8")
    method = method_for(folder, f"{MLP}.down_proj")
    layer = torch.nn.Module()
    layer.has_bias = True
    layer.weight_loader = copy
    method.create_weights(layer, 1536, [384], 1536, 384, torch.bfloat16, weight_loader=copy)
    layer.bias = torch.nn.Parameter(torch.zeros(384, dtype=torch.bfloat16), requires_grad=False)
    stored = torch.linspace(0, 1, 384)
    layer.weight_loader(layer.bias, stored)
    assert layer.bias.dtype == torch.float32 and torch.equal(layer.bias, stored)


@pytest.mark.parametrize(
    "checkpoint, options",
    [("ct-w4a16-g128-sym", []), ("ar-w8-sym", ["--fallback", "dequantize"])],
)
def test_weights_that_gpt2_transposes_are_loaded_as_stored(folders, checkpoint, options):
    method = method_for(folders(checkpoint, *options), f"{MLP}.down_proj")
    weight = create(method, 1536, [384]).weight
    rows, columns = (24, 3072) if weight.dtype == torch.int32 else (384, 1536)
    stored = torch.arange(rows * columns).remainder(127).to(weight.dtype).view(rows, columns)
    weights = [("transformer.h.0.mlp.c_proj.weight", stored)]
    [(_, transposed)] = GPT2Model._transpose_conv1d(None, weights)
    assert transposed.shape == (columns, rows)
    weight.weight_loader(weight, transposed)
    assert torch.equal(weight.data.view(rows, columns), stored)


@pytest.mark.parametrize(
    "load_format, kept", [("auto", True), ("safetensors", True), ("fastsafetensors", False)]
)
def test_tensors_of_loaders_that_use_memory_again_are_copied(
    folders, monkeypatch, load_format, kept
):
    config = SimpleNamespace(load_config=SimpleNamespace(load_format=load_format))
    monkeypatch.setattr(loading, "get_current_vllm_config_or_none", lambda: config)
    layer = create(method_for(folders("ct-w4a16-g128-sym"), f"{MLP}.down_proj"), 1536, [384])
    stored = torch.ones(12, 384, dtype=torch.bfloat16)
    layer.weight_scale.weight_loader(layer.weight_scale, stored)
    assert torch.equal(layer.weight_scale, stored)
    assert (layer.weight_scale.data_ptr() == stored.data_ptr()) == kept


def test_modules_that_differ_have_parameters_of_their_own(folders):
    folder = folders("ct-w4a16-g32-asym", "--scheme", "v_proj=w4a8")
    method = method_for(folder, *QKV)
    layer = plain_layer()
    layer.tp_rank = 0
    method.create_weights(layer, 384, [384, 128, 128], 384, 640, torch.bfloat16, weight_loader=copy)
    assert [piece.layout.id for piece in method.pieces] == [
        "vllm-cpu/wna16", "vllm-cpu/wna16", "vllm-cpu/int4-w4a8"
    ]  # fmt: skip
    assert layer.weight.numel() == 0  # passes on what it is given
    layer.weight.weight_loader(layer.weight, torch.full((8, 768), 7, dtype=torch.int32), "k")
    assert (layer.prepack_1.weight == 7).all()


def test_an_unquantized_layer(folders, monkeypatch):
    monkeypatch.setattr(UnquantizedLinearMethod, "__init__", lambda self: None)
    config = config_for(folders("ct-w4a16-g128-sym"))
    method = config.get_quant_method(of(LinearBase), "model.layers.9.mlp.down_proj")
    assert isinstance(method, UnquantizedLinearMethod)
    assert config.get_quant_method(torch.nn.Module(), "model.embed_tokens") is None


def test_a_module_that_is_not_packed_beside_one_that_is(folders):
    config = config_for(folders("ct-w4a16-g128-sym"))
    del config.modules[f"{ATTENTION}.k_proj"]
    with pytest.raises(
        Unsupported, match=f"{ATTENTION}.k_proj: .* fuses it with {ATTENTION}.q_proj"
    ):
        config.get_quant_method(of(LinearBase), f"{ATTENTION}.qkv_proj")


def test_a_head_that_vllm_pads(folders):
    config = config_for(folders("ct-w4a16-g128-sym"))
    config.modules["lm_head"] = config.modules[f"{MLP}.down_proj"]
    head = of(ParallelLMHead, tp_size=1, num_embeddings_padded=448)
    with pytest.raises(Unsupported, match="found 384 of 448 tokens on 1 ranks"):
        config.get_quant_method(head, "lm_head")


def test_a_packed_layer_that_is_no_linear_one(folders):
    config = config_for(folders("ct-w4a16-g128-sym"))
    with pytest.raises(Unsupported, match="a Module cannot be packed"):
        config.get_quant_method(torch.nn.Module(), f"{MLP}.down_proj")


def test_a_packed_module_without_a_layer(folders, monkeypatch):
    from vllm import distributed

    monkeypatch.setattr(distributed, "get_pp_group", lambda: SimpleNamespace(world_size=1))
    config = config_for(folders("ct-w4a16-g128-sym"))
    config.taken = set(config.modules) - {f"{MLP}.up_proj"}
    with pytest.raises(Unsupported, match=f"{MLP}.up_proj: the packed module belongs to no layer"):
        config._check_taken()
    monkeypatch.setattr(distributed, "get_pp_group", lambda: SimpleNamespace(world_size=2))
    config._check_taken()


def test_names_follow_vllms_model(folders):
    config = config_for(folders("ct-w4a16-g128-sym"))
    config.apply_vllm_mapper(WeightsMapper(orig_to_new_prefix={"model.": "language.model."}))
    method = config.get_quant_method(of(LinearBase), f"language.{MLP}.gate_up_proj")
    assert [module.name for module in method.modules] == [f"{MLP}.gate_proj", f"{MLP}.up_proj"]


def test_config_of_another_version():
    with pytest.raises(Unsupported, match="quantization_config is of another version"):
        PrepackConfig.from_config({"quant_method": "prepack", "format_version": 1})


def test_config_and_manifest_of_different_targets(folders, tmp_path):
    folder = shutil.copytree(folders("ct-w4a16-g128-sym"), tmp_path / "folder")
    with pytest.raises(Malformed, match="name different targets"):
        PrepackConfig("zentorch").maybe_update_config(str(folder))


def test_without_a_folder():
    with pytest.raises(Unsupported, match="has not told the plugin which folder"):
        PrepackConfig("vllm-cpu").get_quant_method(torch.nn.Module(), "model")
