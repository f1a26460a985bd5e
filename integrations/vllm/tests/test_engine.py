"""vLLM on source and packed folder: the same tokens and the same logprobs, to the last bit.

Both run the same op, real or stand-in; what is tested is that it gets the same bytes.
"""

import contextlib
import shutil

import pytest
import torch
from conftest import convert
from engine import generate
from folders import keep
from loaded import in_mapped_files
from tiny_models import LLAMA, QWEN2, write_ordered_pair, write_quantized

from prepack_vllm import linear

pytestmark = pytest.mark.without_zentorch

CASES = {
    "ct_symmetric_g32_llama": (LLAMA, "ct", 32, True),
    "ct_asymmetric_g128_qwen2": (QWEN2, "ct", 128, False),
    "gptq_symmetric_g32_qwen2": (QWEN2, "gptq", 32, True),
    "awq_asymmetric_g32_llama": (LLAMA, "awq", 32, False),
    "auto_round_symmetric_g128_llama": (LLAMA, "auto-round", 128, True),
}


@contextlib.contextmanager
def amx_at_load(monkeypatch, only=""):
    """vLLM packs for 8-bit activations where there is AMX; its op runs without, too."""
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel

    process = CPUWNA16LinearKernel.process_weights_after_loading

    def with_amx(self, layer):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: only in layer.prefix)
            process(self, layer)

    with monkeypatch.context() as patch:
        patch.setattr(CPUWNA16LinearKernel, "process_weights_after_loading", with_amx)
        yield


@pytest.fixture
def two_ranks(monkeypatch):
    """What vLLM needs on a machine with one memory node."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    return {"tensor_parallel_size": 2}


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


def mapped_files(model):
    """Of every packed parameter: does it lie in a mapping of a file?"""
    return {
        name: in_mapped_files(parameter)
        for name, parameter in model.named_parameters()
        if "_proj." in name and not name.endswith(".bias")
    }


@pytest.fixture(scope="module")
def qwen2(folders):
    """A checkpoint with biases and a tied head, packed, and what vLLM generates from it."""
    source = write_quantized(folders / "qwen2", QWEN2, "ct", 32, False)
    packed = convert(source, folders / "qwen2-packed", "--target", "vllm-cpu")
    return source, packed, generate(source)


@pytest.fixture(scope="module")
def qwen2_fused(qwen2, folders):
    """The same checkpoint packed as vLLM holds it."""
    source, _, _ = qwen2
    return convert(source, folders / "qwen2-fused", "--target", "vllm-cpu", "--fuse")


def test_what_is_stored_fused_is_not_copied(qwen2, qwen2_fused):
    _, _, expected = qwen2
    mapped = {}
    assert (
        generate(qwen2_fused, inspect=lambda model: mapped.update(mapped_files(model))) == expected
    )
    assert len(mapped) == 2 * 4 * 3  # layers, linear layers, parts
    assert all(mapped.values())


def test_of_what_is_stored_apart_only_single_modules_are_not_copied(qwen2):
    _, packed, expected = qwen2
    mapped = {}
    assert generate(packed, inspect=lambda model: mapped.update(mapped_files(model))) == expected
    assert {name.split(".")[-2] for name, one in mapped.items() if one} == {"o_proj", "down_proj"}


def test_everything_is_copied_on_demand(qwen2, qwen2_fused, monkeypatch):
    _, _, expected = qwen2
    monkeypatch.setenv("PREPACK_VLLM_COPY", "1")
    mapped = {}
    assert (
        generate(qwen2_fused, inspect=lambda model: mapped.update(mapped_files(model))) == expected
    )
    assert not any(mapped.values())


def test_embedding_and_head_are_not_copied(folders, monkeypatch):
    """Nor is the embedding packed for a product that nobody asks for."""
    source = write_quantized(folders / "untied", LLAMA, "ct", 32, True)
    packed = convert(source, folders / "untied-packed", "--target", "vllm-cpu")
    expected = generate(source)
    held = []

    def look(model):
        layers = (model.model.embed_tokens, model.lm_head)
        held[:] = [in_mapped_files(layer.weight) for layer in layers]
        assert [hasattr(layer, "cpu_linear") for layer in layers] == [False, True]

    assert generate(packed, inspect=look) == expected
    assert held == [True, True]
    monkeypatch.setenv("PREPACK_VLLM_COPY", "1")
    assert generate(packed, inspect=look) == expected
    assert held == [False, False]


def test_kept_modules_go_vllms_own_way(qwen2, tmp_path):
    source, packed, expected = qwen2
    folder = shutil.copytree(packed, tmp_path / "kept")
    keep(folder, source, ".down_proj")
    assert generate(folder) == expected


def test_layouts_are_mixed(folders, monkeypatch):
    source = write_quantized(folders / "mixed", LLAMA, "ct", 32, False)
    options = ("--target", "vllm-cpu", "--scheme", "mlp=w4a8")
    packed = convert(source, folders / "mixed-packed", *options)
    with amx_at_load(monkeypatch, only="mlp"):
        expected = generate(source)
    assert generate(packed) == expected


def test_modules_of_a_fused_layer_one_by_one(qwen2, monkeypatch):
    """As where they differ; here they do not, so that there is something to compare with."""
    _, packed, expected = qwen2
    monkeypatch.setattr(linear, "can_be_one", lambda *_: False)
    assert generate(packed) == expected


def test_layouts_are_mixed_within_a_fused_layer(qwen2, tmp_path):
    """vLLM has no such thing. The outputs are those of the source, but for 8-bit activations."""
    source, _, expected = qwen2
    options = ("--target", "vllm-cpu", "--scheme", "v_proj=w4a8")
    packed = convert(source, tmp_path / "mixed", *options)
    actual = torch.tensor(sum(generate(packed).prompt_logprobs, []))
    difference = (actual - torch.tensor(sum(expected.prompt_logprobs, []))).abs()
    assert 0 < difference.mean() < 0.5  # of some 40: the model is a random one


def test_activation_order_is_applied(folders):
    """vLLM itself refuses this checkpoint. In the other one the rows in front are in its order."""
    ordered, sorted_ = write_ordered_pair(folders, LLAMA, 32)
    packed = convert(ordered, folders / "ordered-packed", "--target", "vllm-cpu")
    assert generate(packed) == generate(sorted_)


def test_a_packed_head(folders):
    source = write_quantized(folders / "head", LLAMA, "gptq", 32, True, head=True)
    packed = convert(source, folders / "head-packed", "--target", "vllm-cpu")
    expected = generate(source)
    names = set()
    actual = generate(packed, inspect=lambda model: names.update(dict(model.named_parameters())))
    assert actual == expected
    assert {"lm_head.weight", "lm_head.weight_scale"} <= names


def test_compiled(qwen2, qwen2_fused):
    """As `vllm serve` runs a model unless told otherwise: by torch.compile."""
    source, packed, _ = qwen2
    expected = generate(source, enforce_eager=False)
    assert generate(packed, enforce_eager=False) == expected
    assert generate(qwen2_fused, enforce_eager=False) == expected


def test_two_ranks(qwen2, two_ranks):
    source, packed, _ = qwen2
    assert generate(packed, **two_ranks) == generate(source, **two_ranks)


def test_two_ranks_with_what_is_stored_fused(qwen2, qwen2_fused, two_ranks):
    source, _, _ = qwen2
    assert generate(qwen2_fused, **two_ranks) == generate(source, **two_ranks)
