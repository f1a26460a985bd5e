"""Layers of experts without an engine: what is loaded where, and what is refused and why."""

import dataclasses
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import convert
from expert_layers import LAYER, MODEL, config_for, create, layer_of, moe_config
from folders import edit_manifest
from quantized import bytes_config, fp8_config, quantize_bytes, quantize_fp8
from safetensors import safe_open
from tiny_models import write_bytes, write_quantized
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig, RoutingMethodType
from vllm.model_executor.layers.fused_moe.experts import cpu_moe, zentorch_moe
from vllm.model_executor.models.utils import WeightsMapper

from prepack_vllm import check, experts, platform
from prepack_vllm.checks import check_folder
from prepack_vllm.errors import CannotRunHere, Malformed, Unsupported
from prepack_vllm.expert_kernels import (
    EXPERT_KERNELS,
    Fp8Experts,
    Int4W4A8Experts,
    ZentorchInt4Experts,
    _WhereTheOpIs,
)
from prepack_vllm.experts import PrepackExpertsMethod
from prepack_vllm.geometry import Geometry, geometry_of
from prepack_vllm.reference import weights

W4A8 = ("--scheme", "experts=w4a8")
W4A16 = ("--scheme", "experts=w4a16")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Packed folders of one checkpoint, by the options that they were packed with."""
    root = tmp_path_factory.mktemp("experts")
    sources = {
        "int4": write_quantized(root / "int4", MODEL, "ct", 64, True),
        "int8": write_bytes(root / "int8", MODEL, quantize_bytes, bytes_config(True)),
        "fp8": write_bytes(
            root / "fp8", MODEL, lambda weight: quantize_fp8(weight, 128, 128), fp8_config(128, 128)
        ),
    }
    made = {}

    def folder(*options, source="int4", target="vllm-cpu"):
        key = (source, target, *options)
        if key not in made:
            out = root / f"packed-{len(made)}"
            made[key] = convert(sources[source], out, "--target", target, *options)
        return made[key]

    return folder


def expert_tensors(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        for name in sorted(file.keys()):
            if name.startswith(f"{LAYER}."):
                yield name.removeprefix(f"{LAYER}."), file.get_tensor(name)


def replace_module(config, name, **changes):
    config.modules[name] = dataclasses.replace(config.modules[name], **changes)


# Loading.


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("target", ["vllm-cpu", "zentorch"])
def test_a_rank_holds_its_share_of_every_expert(folders, standins, monkeypatch, target, ranks):
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)
    monkeypatch.setattr(experts.PrepackExpertsMethod, "_why_not", lambda *_: None)
    folder = folders("--scheme", "w4a8", target=target)
    config = config_for(folder, target)
    inner = MODEL.inner // ranks
    for rank in range(ranks):
        layer = create(config, moe_config(ranks, rank))
        assert len(list(layer.load_weights(expert_tensors(folder)))) == len(
            list(expert_tensors(folder))
        )
        w13, w2 = layer.quant_method.stacks
        for expert in range(MODEL.experts):
            gate, up, down = (whole_weights(folder, expert, name) for name in NAMES)
            share = slice(rank * inner, (rank + 1) * inner)
            expected = torch.cat([gate[share], up[share]])
            assert torch.equal(stack_weights(layer, w13, expert), expected)
            assert torch.equal(stack_weights(layer, w2, expert), down[:, share])


NAMES = ("gate_proj", "up_proj", "down_proj")


def whole_weights(folder, expert, name):
    manifest = check_folder(folder)
    module = manifest.modules[f"{LAYER}.{expert}.{name}"]
    geometry = geometry_of(module, manifest.activation_dtype)
    tensors = dict(expert_tensors(folder))
    parts = {part: tensors[f"{expert}.{name}.{part}"] for part in module.parts}
    return torch.from_numpy(weights(module.layout, geometry, parts))


def stack_weights(layer, stack, expert):
    parts = {
        loader.part.name: getattr(layer, f"{stack.prefix}_{loader.part.name}")[expert]
        for loader in stack.loaders
    }
    return torch.from_numpy(weights(layer.quant_method.grid.layout, stack.geometry, parts))


def test_a_part_that_does_not_come_is_named(folders, standins):
    folder = folders(*W4A8)
    layer = create(config_for(folder))
    layer.quant_method.on_loaded = lambda: None
    some = ((n, one) for n, one in expert_tensors(folder) if n != "2.up_proj.weight_scale")
    list(layer.load_weights(some))
    with pytest.raises(
        Malformed, match=f"{LAYER}.2.up_proj: part weight_scale was not loaded. Copy the folder"
    ):
        layer.quant_method.process_weights_after_loading(layer)


@pytest.mark.parametrize(
    "stored", [torch.zeros(8, 2, 32, dtype=torch.bfloat16), torch.zeros(1, 2, 32)],
    ids=["dtype", "shape"],
)  # fmt: skip
def test_a_part_of_another_dtype_or_shape_is_not_converted(folders, standins, stored):
    layer = create(config_for(folders(*W4A8)))
    with pytest.raises(Malformed, match=f"{LAYER}.1.gate_proj: part weight_scale is of another"):
        list(layer.load_weights([("1.gate_proj.weight_scale", stored)]))


def test_nothing_is_copied_after_loading(folders, standins):
    folder = folders(*W4A8)
    layer = load_all(config_for(folder), folder)
    pointers = [one.data_ptr() for one in layer.quant_method.weights]
    assert pointers == [layer.w13_weight.data_ptr(), layer.w2_weight.data_ptr()]
    assert layer.quant_method.get_fused_moe_quant_config(layer).w1_scale is not None


def load_all(config, folder):
    layer = create(config)
    layer.quant_method.on_loaded = lambda: None
    list(layer.load_weights(expert_tensors(folder)))
    layer.quant_method.process_weights_after_loading(layer)
    return layer


# By case: source, target, options, and the least dB. Activations of 8 bits are quantized twice.
OPS = {
    "int4_w4a8": ("int4", "vllm-cpu", W4A8, 32),
    "int8_vnni": ("int8", "vllm-cpu", (), 32),
    "fp8_vnni": ("fp8", "vllm-cpu", (), 42),
    "zentorch_da8w4": ("int4", "zentorch", ("--scheme", "w4a8"), 32),
    "zentorch_int8": ("int8", "zentorch", (), 32),
}


@pytest.mark.parametrize("case", OPS)
def test_the_op_computes_what_the_layer_is(folders, standins, monkeypatch, case):
    """Against plain arithmetic in f64 with the weights that the parts of each expert hold."""
    source, target, options, least = OPS[case]
    if target == "zentorch" and "zentorch::zentorch_fused_moe" in standins:
        monkeypatch.setattr(platform, "zentorch_runs", lambda: True)
        for module in (cpu_moe, zentorch_moe):
            monkeypatch.setattr(module, "has_zentorch_op", lambda names: True)
    folder = folders(*options, source=source, target=target)
    layer = load_all(config_for(folder, target), folder)
    method = layer.quant_method
    random = np.random.default_rng(3)
    x = torch.from_numpy(random.standard_normal((9, MODEL.hidden))).to(torch.bfloat16)
    logits = torch.from_numpy(random.standard_normal((9, MODEL.experts))).float()
    topk_weights, topk_ids = logits.softmax(1).topk(2)
    topk_weights /= topk_weights.sum(1, keepdim=True)
    if method.is_monolithic:
        actual = method.apply_monolithic(layer, x, logits)
    else:
        actual = method.apply(layer, x, topk_weights, topk_ids.int(), None, None)
    expected = torch.zeros(9, MODEL.hidden, dtype=torch.float64)
    for expert in range(MODEL.experts):
        gate, up, down = (whole_weights(folder, expert, name) for name in NAMES)
        inner = torch.nn.functional.silu(x.double() @ gate.T) * (x.double() @ up.T)
        share = (topk_weights * (topk_ids == expert)).sum(1, keepdim=True)
        expected += share * (inner @ down.T)
    noise = (actual.double() - expected).square().sum()
    assert 10 * torch.log10(expected.square().sum() / noise) > least


def test_every_expert_is_checked(folders, standins, capsys):
    assert check.main([str(folders(*W4A8))]) == 0
    modules = 4 + 3 * MODEL.experts
    assert capsys.readouterr().out.endswith(f"passed: {modules} of {modules} modules\n")


# Which method a layer gets.


def test_names_of_experts_follow_vllms_model(folders, standins):
    config = config_for(folders(*W4A8))
    mapped = {".gate_proj.": ".w1.", ".up_proj.": ".w3.", ".down_proj.": ".w2."}
    config.apply_vllm_mapper(WeightsMapper(orig_to_new_substr=mapped))
    layer = layer_of(
        moe_config(), ckpt_gate_proj_name="w1", ckpt_up_proj_name="w3", ckpt_down_proj_name="w2"
    )
    method = config.get_quant_method(layer, LAYER)
    assert isinstance(method, PrepackExpertsMethod)
    assert method.grid.modules["w3"][2].name == f"{LAYER}.2.up_proj"


def test_plain_experts_are_vllms_own(folders, standins):
    config = config_for(folders(*W4A8))
    for name in [name for name in config.modules if name.startswith(LAYER)]:
        replace_module(config, name, layout="plain/bf16")
    assert config.get_quant_method(layer_of(moe_config()), LAYER) is None
    assert {name for name in config.modules if name.startswith(LAYER)} <= config.taken


def test_experts_that_are_not_packed_are_left_to_vllm(folders, standins):
    config = config_for(folders(*W4A8))
    assert config.get_quant_method(layer_of(moe_config()), "model.layers.9.mlp.experts") is None


def test_one_expert_that_is_not_packed_is_named(folders, standins):
    config = config_for(folders(*W4A8))
    del config.modules[f"{LAYER}.2.up_proj"]
    with pytest.raises(
        Unsupported,
        match=f"{LAYER}.2.up_proj: the module is not packed, but .* {LAYER}.0.gate_proj",
    ):
        config.get_quant_method(layer_of(moe_config()), LAYER)


def test_plain_experts_beside_one_that_is_kept(folders, standins):
    config = config_for(folders(*W4A8))
    for name in [name for name in config.modules if name.startswith(LAYER)]:
        replace_module(config, name, layout="plain/bf16")
    del config.modules[f"{LAYER}.3.down_proj"]
    assert config.get_quant_method(layer_of(moe_config()), LAYER) is None
    config.kept.add(f"{LAYER}.3.down_proj")
    with pytest.raises(Unsupported, match=f"{LAYER}.3.down_proj: the module is not packed"):
        config.get_quant_method(layer_of(moe_config()), LAYER)


def test_experts_of_other_names(folders, standins):
    """As of tensors in which the experts are stacked."""
    config = config_for(folders(*W4A8))
    for name in [name for name in config.modules if name.startswith(LAYER)]:
        expert, projection = name.removeprefix(f"{LAYER}.").split(".")
        config.modules[f"{LAYER}.{projection}.{expert}"] = config.modules.pop(name)
    with pytest.raises(Unsupported, match="none that vLLM's experts consist of .*stores each"):
        config.get_quant_method(layer_of(moe_config()), LAYER)


# Layouts and checkpoints without an op.


def test_wna16_experts(folders, standins):
    config = config_for(folders(*W4A16))
    with pytest.raises(
        Unsupported,
        match=f"{LAYER}.0.gate_proj: vLLM has no op for experts in vllm-cpu/wna16 .*"
        "Pack again with --scheme .*experts.*=w4a8",
    ):
        config.get_quant_method(layer_of(moe_config()), LAYER)


def test_zentorch_woq_experts(folders, standins, monkeypatch):
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)
    config = config_for(folders(*W4A16, target="zentorch"), "zentorch")
    with pytest.raises(Unsupported, match="in zentorch/woq .*--scheme .*experts.*=w4a8"):
        config.get_quant_method(layer_of(moe_config()), LAYER)


@pytest.mark.parametrize(
    "layout, hint",
    [
        ("vllm-cpu/bf16-vnni", "--fallback keep"),
        ("vllm-cpu/int8-plain", "Load the source, which vLLM repacks itself"),
    ],
)
def test_other_layouts_without_an_op(folders, standins, layout, hint):
    config = config_for(folders(*W4A8))
    replace_module(config, f"{LAYER}.0.gate_proj", layout=layout)
    with pytest.raises(Unsupported, match=f"no op for experts in {layout} .*{hint}"):
        config.get_quant_method(layer_of(moe_config()), LAYER)


@pytest.mark.parametrize("projection", ["up_proj", "down_proj"])
def test_mixed_layouts_within_a_layer(folders, standins, projection):
    pattern = f"experts.2.{projection}"
    config = config_for(folders(*W4A8, "--scheme", f"{pattern}=w4a16"))
    with pytest.raises(
        Unsupported,
        match=rf"{LAYER}.2.{projection}: the expert is packed in another way than "
        rf"{LAYER}.0.gate_proj.*found vllm-cpu/wna16, expected vllm-cpu/int4-w4a8.*one --scheme",
    ):
        create(config)


@pytest.mark.parametrize("projection", ["up_proj", "down_proj"])
def test_mixed_schemes_within_a_layer(folders, standins, projection):
    config = config_for(folders(*W4A8))
    replace_module(config, f"{LAYER}.3.{projection}", group_size=32)
    with pytest.raises(Unsupported, match=rf"{LAYER}.3.{projection}: .*found .*32 x 1.*64 x 1"):
        create(config)


def add_part(config, name, part):
    parts = dict(config.modules[name].parts)
    replace_module(config, name, parts=parts | {part: parts["weight"]})


def test_activation_order(folders, standins):
    config = config_for(folders(*W4A8))
    name = f"{LAYER}.1.down_proj"
    add_part(config, name, "input_order")
    with pytest.raises(Unsupported, match=f"{name}: the expert has activation order, and vLLM's"):
        create(config)


def test_one_expert_with_a_bias(folders, standins):
    config = config_for(folders(*W4A8))
    add_part(config, f"{LAYER}.1.down_proj", "bias")
    with pytest.raises(Unsupported, match="1.down_proj: .*another way.*found a bias, expected no"):
        create(config)


def test_biases_that_the_op_does_not_take(folders, standins):
    config = config_for(folders(*W4A8))
    for name in [name for name in config.modules if name.startswith(LAYER)]:
        add_part(config, name, "bias")
    with pytest.raises(Unsupported, match="cannot run this layer: the model's experts have none"):
        create(config)
    with pytest.raises(Unsupported, match="cannot run this layer: the experts have biases"):
        create(config, moe_config(has_bias=True))


def test_the_op_for_4_bits_takes_one_size_of_groups():
    w13 = Geometry(512, 128, "group", 64, 1, True, None, "BF16")
    w2 = Geometry(128, 256, "group", 128, 1, True, None, "BF16")
    assert Int4W4A8Experts(w13, w13.piece(128, 256)).why_not() is None
    assert "groups of 64 input channels in gate and up, of 128 in down" in str(
        Int4W4A8Experts(w13, w2).why_not()
    )


def test_the_op_for_fp8_takes_blocks_of_one_size():
    w13 = Geometry(512, 128, "block", 128, 128, True, None, "BF16")
    assert Fp8Experts(w13, w13).why_not() is None
    channel = dataclasses.replace(w13, granularity="channel")
    assert "scales per channel, and" in str(Fp8Experts(channel, channel).why_not())
    assert "scales per channel, and" in str(Fp8Experts(w13, channel).why_not())
    other = dataclasses.replace(w13, scale_rows=64)
    assert "blocks of 128 output channels in gate and up, of 64" in str(
        Fp8Experts(w13, other).why_not()
    )


def test_zentorchs_op_for_4_bits_takes_groups():
    group = Geometry(512, 128, "group", 64, 1, True, None, "BF16")
    channel = dataclasses.replace(group, granularity="channel", group_size=128)
    assert ZentorchInt4Experts(group, group).why_not() is None
    assert "scales per channel, and" in str(ZentorchInt4Experts(group, channel).why_not())


# Models and machines.

REFUSED_MODELS = {
    "activation": ({"activation": MoEActivation.GELU}, {}, "does not support .*GELU"),
    "biases": ({"has_bias": True}, {}, "the model's experts have biases, and the packed"),
    "limit": ({"swiglu_limit": 7.0}, {}, "cuts activations off at 7.0"),
    "weighted_inputs": ({}, {"apply_router_weight_on_input": True}, "multiplies the inputs"),
}


@pytest.mark.parametrize("case", REFUSED_MODELS)
def test_models_that_the_op_cannot_run(folders, standins, case):
    fields, attributes, reason = REFUSED_MODELS[case]
    config = config_for(folders(*W4A8))
    with pytest.raises(
        Unsupported, match=f"{LAYER}.0.gate_proj: .* cannot run this layer: .*{reason}.*=bf16"
    ):
        create(config, moe_config(**fields), **attributes)


def test_a_router_that_vllm_lacks_on_cpus(folders, standins):
    """MiniMax M2. vLLM itself loads it, and stops at the first token."""
    config = config_for(folders(*W4A8))
    with pytest.raises(Unsupported, match="router for CPUs knows sigmoid scores for groups"):
        create(config, moe_config(), scoring_func="sigmoid")
    create(config, moe_config(), scoring_func="sigmoid", use_grouped_topk=True)
    create(config, moe_config(routing_method=RoutingMethodType.DeepSeekV3))


def test_inputs_that_the_router_has_weighted(folders, standins):
    """Llama 4: the op must not weight the outputs, too."""
    config = config_for(folders(*W4A8))
    create(config, moe_config(experts_per_token=1), apply_router_weight_on_input=True)
    seen = []

    class Op:
        def apply(self, **arguments):
            seen.append(arguments)

    class Weighted(_WhereTheOpIs, Op):
        pass

    weights = torch.full((3, 1), 0.25)
    for on_input in (True, False):
        Weighted().apply(topk_weights=weights, apply_router_weight_on_input=on_input)
    assert torch.equal(seen[0]["topk_weights"], torch.ones(3, 1))
    assert torch.equal(seen[1]["topk_weights"], weights)
    assert not any(one["apply_router_weight_on_input"] for one in seen)


def test_inputs_that_the_op_weights_on_arm(monkeypatch):
    """vLLM's class hands the router's weights to the op, once, and says what they are for."""
    seen = []
    monkeypatch.setattr(
        torch.ops._C, "dynamic_4bit_int_moe", lambda *arguments: seen.append(arguments), raising=False
    )
    experts = EXPERT_KERNELS["vllm-arm/int4-w4a8"]
    assert experts.takes_weighted_inputs
    one = experts.cls.__new__(experts.cls)
    one.moe_config = moe_config(experts_per_token=1)
    one.quant_config = SimpleNamespace(block_shape=[1, 32])
    x = torch.ones(3, MODEL.hidden, dtype=torch.bfloat16)
    for on_input in (True, False):
        one.apply(
            x, None, None, torch.eye(3, MODEL.experts), MoEActivation.SILU, MODEL.experts, None, None,
            on_input,
        )  # fmt: skip
    assert [call[8] for call in seen] == [True, False]
    assert all(call[0] is x and call[1].tolist() == [[0], [1], [2]] for call in seen)


@pytest.mark.parametrize("layout", ["vllm-arm/int8-neon", "vllm-arm/bf16-neon"])
def test_ops_for_arm_that_are_given_experts_take_any_router(layout):
    kernel = EXPERT_KERNELS[layout]
    for method in (RoutingMethodType.Llama4, RoutingMethodType.DeepSeekV3):
        assert kernel.cls._supports_routing_method(method, *kernel.keys)
    assert not kernel.cls.is_monolithic()


def test_zentorch_interleaves_for_another_activation(folders, standins, monkeypatch):
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)
    config = config_for(folders("--scheme", "w4a8", target="zentorch"), "zentorch")
    with pytest.raises(Unsupported, match="are stored apart, and the activation is swigluoai"):
        create(config, moe_config(activation=MoEActivation.SWIGLUOAI))


@pytest.mark.parametrize("change", [{"use_ep": True}, {"dp_size": 2}, {"pcp_size": 2}])
def test_other_parallelism_than_that_of_tensors(folders, standins, change):
    parallel = dataclasses.replace(FusedMoEParallelConfig.make_no_parallel(), **change)
    with pytest.raises(
        Unsupported, match="run with tensor parallelism only .*expert parallelism o"
    ):
        create(config_for(folders(*W4A8)), moe_config(moe_parallel_config=parallel))


def test_too_many_ranks(folders, standins):
    config = config_for(folders(*W4A8))
    with pytest.raises(Unsupported, match="hold 16 output channels, but weight .*Use less tensor"):
        create(config, moe_config(16))
    with pytest.raises(Unsupported, match=r"down_proj: a rank would hold 32 input channels"):
        create(config, moe_config(8))


def test_sums_over_all_input_channels_cannot_be_cut(folders, standins):
    config = config_for(folders(source="int8"))
    assert create(config).w13_weight.shape == (MODEL.experts, 2 * MODEL.inner, MODEL.hidden + 4)
    with pytest.raises(Unsupported, match="128 input channels, but weight cannot be cut along"):
        create(config, moe_config(2))


def test_activations_of_another_dtype(folders, standins):
    with pytest.raises(Unsupported, match="another dtype .*float16.* --dtype bfloat16"):
        create(config_for(folders(*W4A8)), dtype=torch.float16)


def test_a_model_of_another_shape(folders, standins):
    with pytest.raises(
        Malformed, match=f"{LAYER}.0.gate_proj: .*found N = 256, K = 128, expected N = 256, K = 64"
    ):
        create(config_for(folders(*W4A8)), hidden=64)


def test_a_cpu_without_the_op(folders, standins, monkeypatch):
    config = config_for(folders(*W4A8))
    monkeypatch.setattr(experts, "has_op", lambda name: False)
    with pytest.raises(CannotRunHere, match="int4-w4a8 need the op _C::fused_experts_cpu"):
        create(config)


# The folder.


def test_a_missing_expert_is_named(folders, standins, tmp_path):
    folder = shutil.copytree(folders(*W4A8), tmp_path / "folder")
    edit_manifest(folder, lambda document: document["modules"].pop(f"{LAYER}.2.up_proj"))
    with pytest.raises(Malformed, match=f"{LAYER}.2.up_proj: the expert is missing, and others"):
        check_folder(folder)


def test_experts_that_are_kept_or_pass_through_are_not_missing(folders, standins, tmp_path):
    folder = shutil.copytree(folders(*W4A8), tmp_path / "folder")

    def change(document):
        kept = document["modules"].pop(f"{LAYER}.2.up_proj")
        passed = document["modules"].pop(f"{LAYER}.1.up_proj")
        document["kept"][f"{LAYER}.2.up_proj"] = "for a test"
        document["tensors"] += [*kept["parts"].values(), *passed["parts"].values()]

    edit_manifest(folder, change)
    check_folder(folder)
