"""Tensors that the plug-in loads itself, past the model's own load_weights."""

from types import SimpleNamespace

import pytest
import torch
from conftest import convert
from engine import generate
from tiny_models import LLAMA, write_fp8, write_quantized
from vllm.model_executor.model_loader import DefaultModelLoader

from prepack_vllm import integrity, own_tensors, register
from prepack_vllm.checks import check_folder
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.hooks import hook_into
from prepack_vllm.own_tensors import (
    check_load_format,
    claim,
    claim_parameters,
    without_own,
)

GATE_UP = "model.layers.0.mlp.gate_up_proj"
OTHERS = {"model.norm.weight": torch.ones(2)}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_quantized(tmp_path_factory.mktemp("own") / "source", LLAMA, "ct", 32, True)


@pytest.fixture(scope="module")
def fused(source):
    return convert(source, source.parent / "fused", "--target", "vllm-cpu", "--fuse")


@pytest.fixture(scope="module")
def manifest(fused):
    return check_folder(fused)


def stream(manifest):
    tensors = {name: torch.zeros(1) for name in sorted(manifest.own_names)} | OTHERS
    return iter(tensors.items())


def test_what_is_stored_fused_is_no_tensor_of_the_model(manifest):
    last = {name.split(".")[-2] for name in manifest.own_names}
    assert last == {"qkv_proj", "gate_up_proj"}


def test_a_layer_is_given_what_it_claimed_and_the_model_the_rest(manifest):
    model, came = torch.nn.Linear(1, 1), []
    name = f"{GATE_UP}.weight"
    claim(model, manifest, {name: came.append})
    seen = list(without_own(stream(manifest), model, "elsewhere"))
    assert [one for one, _ in seen] == list(OTHERS)  # nor what another stage of a pipeline claims
    assert len(came) == 1


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stage_in_which_no_layer_claimed_a_tensor(elsewhere, manifest, monkeypatch):
    """A draft model from another folder is loaded under the configuration of the first model."""
    config = SimpleNamespace(quant_config=SimpleNamespace(manifest=manifest))
    monkeypatch.setattr(integrity, "get_current_vllm_config_or_none", lambda: config)
    folder = "elsewhere" if elsewhere else str(manifest.folder)
    seen = list(without_own(stream(manifest), torch.nn.Linear(1, 1), folder))
    assert len(seen) == len(OTHERS) + (len(manifest.own_names) if elsewhere else 0)


def test_a_model_without_packed_layers_sees_everything(manifest):
    seen = list(without_own(stream(manifest), torch.nn.Linear(1, 1), "elsewhere"))
    assert len(seen) == len(OTHERS) + len(manifest.own_names)


def test_a_tensor_that_the_model_would_see_too_cannot_be_claimed(manifest):
    with pytest.raises(AssertionError, match="the model would see"):
        claim(torch.nn.Linear(1, 1), manifest, {"model.norm.weight": print})


def test_a_layer_without_the_parameter_is_refused(manifest):
    layer = torch.nn.Module()
    layer.prefix = GATE_UP
    claim_parameters(layer, manifest, manifest.modules[GATE_UP])
    with pytest.raises(Malformed, match=f"{GATE_UP}: the folder has a weight, and the model's"):
        list(without_own(stream(manifest), layer, "elsewhere"))


def test_loaders_are_hooked_into_once():
    register()
    once = DefaultModelLoader.get_all_weights
    register()
    hook_into(DefaultModelLoader)
    assert DefaultModelLoader.get_all_weights is once


@pytest.mark.parametrize("form", ["dummy", "sharded_state", "tensorizer", "pt"])
def test_formats_that_read_no_safetensors_are_refused(form, manifest, monkeypatch):
    config = SimpleNamespace(load_config=SimpleNamespace(load_format=form))
    monkeypatch.setattr(own_tensors, "get_current_vllm_config_or_none", lambda: config)
    with pytest.raises(Unsupported, match=f"found --load-format {form}.*Leave out"):
        check_load_format(manifest)


def test_an_engine_refuses_such_a_format(fused, standins):
    with pytest.raises(Unsupported, match="packed folders are loaded from their safetensors"):
        generate(fused, load_format="dummy")


@pytest.mark.without_zentorch
def test_vllms_own_count_of_what_was_loaded(source, fused, standins):
    extra = {"enable_weights_track": True}
    assert generate(fused, model_loader_extra_config=extra) == generate(source)


def test_plain_weights_that_are_stored_fused(tmp_path):
    source = write_fp8(tmp_path / "source", LLAMA, 64, 128)
    options = ("--target", "zentorch", "--fallback", "dequantize")
    apart = convert(source, tmp_path / "apart", *options)
    together = convert(source, tmp_path / "together", *options, "--fuse")
    assert {one.layout for one in check_folder(together).modules.values()} == {"plain/bf16"}
    assert generate(together) == generate(apart)
