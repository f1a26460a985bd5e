"""Stacked experts without an engine: what each rank holds of them, and what is refused and why."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from conftest import convert
from expert_layers import LAYER, MODEL, config_for, create, moe_config
from folders import edit_manifest, edit_tensors, follow_file
from quantized import bytes_config, quantize_bytes
from safetensors import safe_open
from tiny_models import write_bytes, write_quantized

from prepack_vllm import check, experts, own_tensors, platform
from prepack_vllm.checks import check_folder
from prepack_vllm.errors import Malformed, Unsupported

W13, W2 = f"{LAYER}.gate_up_proj", f"{LAYER}.down_proj"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A checkpoint packed with its experts one by one, and stacked."""
    root = tmp_path_factory.mktemp("stacks")
    sources = {
        "int4": write_quantized(root / "int4", MODEL, "ct", 64, True),
        "int8": write_bytes(root / "int8", MODEL, quantize_bytes, bytes_config(True)),
    }
    made = {}

    def pair(source, target):
        if (source, target) not in made:
            made[source, target] = tuple(
                convert(
                    sources[source], root / f"{source}-{target}-{len(more)}", "--target", target,
                    "--scheme", "w4a8" if source == "int4" else "auto", *more,
                )
                for more in ((), ("--fuse",))
            )  # fmt: skip
        return made[source, target]

    return pair


@pytest.fixture
def stacked(folders, tmp_path):
    """A copy to be changed."""
    return shutil.copytree(folders("int4", "vllm-cpu")[1], tmp_path / "stacked")


def tensors_of(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        for name in file.keys():
            yield name, file.get_tensor(name)


def load(folder, layer, tensors=None):
    """As vLLM's loader does: what the plug-in leaves goes to the layer."""
    layer.quant_method.on_loaded = lambda: None
    model = torch.nn.ModuleList([layer])
    rest = own_tensors.without_own(tensors or tensors_of(folder), model, str(folder))
    prefix = f"{LAYER}."
    own = ((name.removeprefix(prefix), one) for name, one in rest if name.startswith(prefix))
    list(layer.load_weights(own))
    for stack in layer.quant_method.stacks:
        for loader in stack.loaders:
            loader.check_loaded(stack.shards)
    return {name: one.data for name, one in layer.named_parameters()}


@pytest.mark.parametrize(
    "source, target, ranks",
    [("int4", "vllm-cpu", 1), ("int4", "vllm-cpu", 2), ("int4", "zentorch", 1),
     ("int4", "zentorch", 2), ("int8", "vllm-cpu", 1), ("int8", "zentorch", 2)],
)  # fmt: skip
def test_a_rank_holds_what_it_holds_of_experts_stored_one_by_one(
    folders, standins, monkeypatch, source, target, ranks
):
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)
    monkeypatch.setattr(experts.PrepackExpertsMethod, "_why_not", lambda *_: None)
    apart, stacked = folders(source, target)
    for rank in range(ranks):
        held = [
            load(folder, create(config_for(folder, target), moe_config(ranks, rank)))
            for folder in (apart, stacked)
        ]
        assert held[0].keys() == held[1].keys() and "w13_weight" in held[0]
        for name, one in held[0].items():
            assert one.shape == held[1][name].shape and torch.equal(one, held[1][name]), name


def test_the_model_sees_no_stack(folders, standins):
    _, stacked = folders("int4", "vllm-cpu")
    layer = create(config_for(stacked))
    model = torch.nn.ModuleList([layer])
    seen = {name for name, _ in own_tensors.without_own(tensors_of(stacked), model, str(stacked))}
    assert seen and not any(".experts." in name for name in seen)


def test_a_part_that_does_not_come_is_named(folders, standins):
    _, stacked = folders("int4", "vllm-cpu")
    some = [(name, one) for name, one in tensors_of(stacked) if name != f"{W2}.weight_scale"]
    with pytest.raises(Malformed, match=f"{W2}: part weight_scale was not loaded. Copy the folder"):
        load(stacked, create(config_for(stacked)), some)


@pytest.mark.parametrize("change", [lambda one: one.to(torch.float64), lambda one: one[:1]])
def test_a_part_of_another_dtype_or_shape_is_not_converted(folders, standins, change):
    _, stacked = folders("int4", "vllm-cpu")
    changed = [
        (name, change(one) if name == f"{W13}.weight_scale" else one)
        for name, one in tensors_of(stacked)
    ]
    with pytest.raises(Malformed, match=f"{W13}: part weight_scale is of another dtype or shape"):
        load(stacked, create(config_for(stacked)), changed)


def test_another_number_of_experts(folders, standins):
    _, stacked = folders("int4", "vllm-cpu")
    count = MODEL.experts + 1
    moe = moe_config(num_experts=count, num_local_experts=count, num_logical_experts=count)
    with pytest.raises(
        Malformed, match=f"{W13}: .* another number of experts .*found {MODEL.experts}"
    ):
        create(config_for(stacked), moe)


def test_one_stack_without_the_other(folders, standins):
    config = config_for(folders("int4", "vllm-cpu")[1])
    del config.modules[W2]
    with pytest.raises(Unsupported, match=f"{W13}: the experts are stacked, and the others"):
        create(config)


def test_expert_parallelism(folders, standins):
    config = config_for(folders("int4", "vllm-cpu")[1])
    moe = moe_config()
    parallel = dataclasses.replace(moe.moe_parallel_config, use_ep=True)
    with pytest.raises(Unsupported, match="with tensor parallelism only .*expert parallelism on"):
        create(config, dataclasses.replace(moe, moe_parallel_config=parallel))


def test_stacks_that_are_halves_of_one_tensor_per_expert(folders, standins):
    """As a checkpoint has them that stores gate and up of all experts in one tensor."""
    config = config_for(folders("int4", "vllm-cpu")[1])
    for name in (W13, W2):
        names = tuple(f"{name}.{expert}" for expert in range(MODEL.experts))
        config.modules[name] = dataclasses.replace(config.modules[name], fused=names)
    grid = create(config).quant_method.grid
    (gate,), (up,) = grid.modules["w1"], grid.modules["w3"]
    assert (gate.name, gate.n, up.n) == (f"{W13}.0", MODEL.inner, MODEL.inner)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m.update(experts=3), '"experts" is not the number of experts'),
        (lambda m: m.update(experts=1), '"experts" is too small'),
        (lambda m: m.update(experts="8"), '"experts" is missing or of another type'),
        (lambda m: m.pop("fused"), '"experts" is not the number of experts'),
        (lambda m: m.pop("experts"), "does not fit|not made of the layers"),
        (lambda m: m["fused"].reverse(), "it is not made of the layers that vLLM looks for"),
        (lambda m: m["fused"][0].update(module="x"), "it is not made of the layers"),
        (lambda m: m["parts"]["weight"]["shape"].pop(0), "part weight does not fit"),
    ],
)  # fmt: skip
def test_manifests_that_lie(stacked, standins, change, message):
    edit_manifest(stacked, lambda document: change(document["modules"][W13]))
    with pytest.raises(Malformed, match=message):
        check_folder(stacked)


def test_a_tensor_of_an_expert_beside_its_stack(stacked, standins):
    name = f"{LAYER}.0.up_proj.weight"
    edit_tensors(stacked, lambda tensors: tensors.update({name: torch.zeros(1)}))

    def add(document):
        document["tensors"].append(
            {"tensor": name, "file": "model.safetensors", "offset": 0, "dtype": "F32",
             "shape": [1], "xxh3_128": "0" * 32}
        )  # fmt: skip

    edit_manifest(stacked, add)
    with pytest.raises(Malformed, match=f"{name}: the tensor lies beside the packed module"):
        check_folder(stacked)


def test_a_stack_under_a_name_that_says_nothing(stacked, standins):
    def rename(document):
        text = json.dumps(document["modules"].pop(W13)).replace(W13, f"{LAYER}.both")
        document["modules"][f"{LAYER}.both"] = json.loads(text)

    edit_manifest(stacked, rename)
    with pytest.raises(Malformed, match="not made of the layers .*expected one layer"):
        check_folder(stacked)


@pytest.mark.parametrize("source", ["int4", "int8"])
def test_every_expert_of_a_stack_is_checked(folders, standins, tmp_path, capsys, source):
    stacked = shutil.copytree(folders(source, "vllm-cpu")[1], tmp_path / "stacked")
    assert check.main([str(stacked)]) == 0
    capsys.readouterr()

    def damage(tensors):
        weight = tensors[f"{W13}.weight"]
        weight[3] = weight[2].clone()

    edit_tensors(stacked, damage)
    follow_file(stacked)
    assert check.main([str(stacked), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    failed = [one for one in report["modules"] if one["verdict"] != "passed"]
    assert [one["module"] for one in failed] == [W13]
    # The weights of expert 3 are others than its scales and sums are for; hashes are those of before.
    assert "weight" in failed[0]["verdict"]


def test_experts_are_found_by_the_names_of_vllms_layers():
    from prepack_vllm.expert_stacks import find_stacks

    stack = SimpleNamespace(experts=4, name="x")
    assert find_stacks({"a.experts.w13": stack, "a.experts.w2": stack}, "a.experts") == (
        stack,
        stack,
    )
    assert find_stacks({"a.experts.w2": SimpleNamespace(experts=0)}, "a.experts") is None
    assert find_stacks({}, "a.experts") is None
