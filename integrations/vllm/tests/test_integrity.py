"""Weights that were damaged after they were packed."""

import shutil

import pytest
from conftest import convert
from folders import damage
from loaded import load
from tiny_models import LLAMA, QWEN3_MOE, write_quantized
from vllm.distributed import cleanup_dist_env_and_memory

from prepack_vllm.errors import Malformed
from prepack_vllm.integrity import VERIFY_VARIABLE
from prepack_vllm.loading import COPY_VARIABLE

LAYER = "model.layers.1"
FUSE = ("--fuse",)
FORMS = {
    "plain": (LLAMA, ()), "fused": (LLAMA, FUSE), "experts": (QWEN3_MOE, ()),
    "stacks": (QWEN3_MOE, FUSE),
}  # fmt: skip

COPIED = {
    "one_of_several": ("plain", f"{LAYER}.self_attn.q_proj.weight"),
    "scales": ("plain", f"{LAYER}.mlp.up_proj.weight_scale"),
    "expert": ("experts", f"{LAYER}.mlp.experts.2.up_proj.weight"),
    "not_packed": ("plain", "model.embed_tokens.weight"),
    "norm_beside_fused": ("fused", "model.norm.weight"),
}
MAPPED = {
    "whole": ("plain", f"{LAYER}.self_attn.o_proj.weight"),
    "stack": ("stacks", f"{LAYER}.mlp.experts.gate_up_proj.weight"),
    "fused": ("fused", f"{LAYER}.self_attn.qkv_proj.weight"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("integrity")
    made = {}

    def folder(form):
        if form not in made:
            model, options = FORMS[form]
            source = write_quantized(root / f"{form}-source", model, "ct", 64, True)
            made[form] = convert(source, root / form, "--target", "vllm-cpu", *options)
        return made[form]

    return folder


@pytest.fixture(autouse=True)
def no_groups():
    """Those that a model without experts is loaded in do not do for one with experts."""
    yield
    cleanup_dist_env_and_memory()


@pytest.fixture
def damaged(folders, tmp_path, standins):
    def copy(form, name):
        folder = shutil.copytree(folders(form), tmp_path / "damaged")
        damage(folder, name)
        return folder

    return copy


def assert_refused(folder, name):
    module, _, part = name.rpartition(".")
    with pytest.raises(
        Malformed,
        match=f"^{module}: part {part} is damaged: its bytes in .*/model.safetensors are not those "
        f".*Copy the file again, .* {VERIFY_VARIABLE}=0 loads",
    ):
        load(folder)


@pytest.mark.parametrize("case", COPIED)
def test_what_is_copied_is_compared(damaged, case):
    assert_refused(damaged(*COPIED[case]), COPIED[case][1])


@pytest.mark.parametrize("case", MAPPED)
def test_what_is_mapped_is_compared_on_demand(damaged, case, monkeypatch):
    folder = damaged(*MAPPED[case])
    load(folder)
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    assert_refused(folder, MAPPED[case][1])
    monkeypatch.delenv(VERIFY_VARIABLE)
    monkeypatch.setenv(COPY_VARIABLE, "1")
    assert_refused(folder, MAPPED[case][1])


def test_nothing_is_compared_if_that_is_asked_for(damaged, monkeypatch):
    monkeypatch.setenv(VERIFY_VARIABLE, "0")
    load(damaged(*COPIED["scales"]))


@pytest.mark.parametrize("form", FORMS)
def test_sound_folders_pass(folders, standins, form, monkeypatch):
    monkeypatch.setenv(VERIFY_VARIABLE, "1")
    load(folders(form))


def test_another_value_is_refused(folders, standins, monkeypatch):
    monkeypatch.setenv(VERIFY_VARIABLE, "yes")
    with pytest.raises(Malformed, match=f"{VERIFY_VARIABLE}: .*found yes, expected 0 or 1"):
        load(folders("plain"))
