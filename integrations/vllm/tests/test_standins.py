"""Ops, real or stand-ins, against what the real ones made: fixtures/golden."""

import pytest
import torch
from golden import (
    CASES,
    EXPERTS,
    IDS,
    W4A8,
    W8A8,
    bytes_of,
    geometry_of,
    inputs_of,
    packed_parts,
    read,
)
from pack import PACK
from safetensors import safe_open
from standins import convert_scale_packed, convert_weight_packed
from standins_experts import fused_experts_cpu

from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts import LAYOUTS

# Of the others the order of f32 sums is not known.
EXACT = ("vllm-cpu/wna16", *W4A8, *W8A8)
AMX = torch.cpu._is_amx_tile_supported()


def test_there_are_golden_files_for_every_op_but_bf16_and_plain():
    assert len(CASES) == 39 + 28 + 11 + 11 + 32 + 15 + 10


@pytest.mark.parametrize("layout,path", CASES, ids=IDS)
def test_output_is_that_of_the_real_op(layout, path, standins):
    tensors = read(path)
    geometry = geometry_of(layout, tensors)
    parts = packed_parts(layout, tensors, geometry)
    kernel = LAYOUTS[layout].kernel(geometry, parts)
    bias = tensors.get("bias")
    if bias is not None:
        bias = bias.to(torch.float32 if kernel.f32_bias else tensors["x"].dtype)
    y = kernel(tensors["x"], bias)
    expected = tensors["y"]
    if AMX and layout in ("vllm-cpu/wna16", "vllm-cpu/fp8-vnni"):  # which adds in another order
        noise = (y.double() - expected.double()).square().sum()
        assert noise <= expected.double().square().sum() * 10**-4.8
        return
    if layout in EXACT:
        assert torch.equal(y, expected)
        return
    # One place of bf16, and almost all the same.
    assert torch.allclose(y.float(), expected.float(), rtol=2.0**-7, atol=0)
    assert (y != expected).float().mean() <= 0.004


@pytest.mark.parametrize("layout,path", CASES, ids=IDS)
def test_closed_form_packs_what_the_real_packer_packed(layout, path):
    tensors = read(path)
    geometry = geometry_of(layout, tensors)
    expected = packed_parts(layout, tensors, geometry)
    packed = PACK[layout](geometry, *inputs_of(tensors, geometry))
    assert torch.equal(bytes_of(packed["weight"]), bytes_of(expected["weight"]))


# Experts in MXFP4.


def test_there_are_golden_files_of_experts():
    assert len(EXPERTS) == 15


@pytest.mark.parametrize("path", EXPERTS, ids=[path.stem for path in EXPERTS])
def test_experts_in_mxfp4(path, standins):
    """The stand-in, and the op, which may be it."""
    tensors = read(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    alpha, limit = (float(metadata[n]) if n in metadata else None for n in ("alpha", "limit"))
    expected = tensors["y"].float()
    # An argument of the op from vLLM 0.33 on, which the stand-in does without.
    schema = str(torch.ops._C.fused_experts_cpu.default._schema)
    act_method = [] if "act_method" not in schema else [int(alpha is not None)]
    for op in (fused_experts_cpu, torch.ops._C.fused_experts_cpu):
        y = torch.empty_like(tensors["x"])
        op(
            y, tensors["x"], tensors["packed.w13"], tensors["packed.w2"], tensors["topk_weights"],
            tensors["topk_ids"], 4, tensors["packed.s13"], tensors["packed.s2"], None, None, None,
            None, tensors.get("b13"), tensors.get("b2"), alpha, limit, True, *act_method,
        )  # fmt: skip
        noise = (y.float() - expected).square().sum()
        assert noise <= expected.square().sum() * 10**-4.0


def test_the_activation_is_an_argument_from_033_on():
    tensors = read(next(path for path in EXPERTS if path.stem.endswith("no-bias")))
    x = tensors["x"]
    rest = [tensors[name] for name in ("packed.w13", "packed.w2", "topk_weights", "topk_ids")]
    scales = [tensors["packed.s13"], tensors["packed.s2"]]

    def run(alpha, limit, *act_method):
        y = torch.empty_like(x)
        nothing = [None] * 6
        fused_experts_cpu(y, x, *rest, 4, *scales, *nothing, alpha, limit, True, *act_method)
        return y

    assert torch.equal(run(1.702, 7.0), run(1.702, 7.0, 1))
    assert torch.equal(run(None, None), run(1.702, 7.0, 0))
    with pytest.raises(AssertionError):
        run(None, None, 2)


def test_fp8_with_scales_per_channel_adds_the_bias_as_vllm_does(standins):
    """vLLM 0.33 has a kernel for these, which rounds before it adds the bias."""
    generator = torch.Generator().manual_seed(4)
    n, k = 64, 128
    geometry = Geometry(n, k, "channel", k, 1, True, None, "BF16")
    parts = {
        "weight": torch.randn(n, k, generator=generator).to(torch.float8_e4m3fn),
        "weight_scale": torch.rand(n, generator=generator) + 0.5,
    }
    bias = torch.randn(n, generator=generator).to(torch.bfloat16)
    x = torch.randn(9, k, generator=generator).to(torch.bfloat16)
    kernel = LAYOUTS["vllm-cpu/fp8-vnni"].kernel(geometry, parts)
    ones = torch.ones(1, 1)
    y = torch.ops._C.fp8_scaled_mm_cpu(x, parts["weight"], ones, [n, 128], None, x.dtype, True)
    y = (y.float() * parts["weight_scale"]).to(x.dtype)
    y += bias
    assert torch.equal(kernel(x, bias.float()), y)


@pytest.mark.parametrize("path", EXPERTS, ids=[path.stem for path in EXPERTS])
def test_experts_in_mxfp4_are_packed_as_the_real_packer_packed_them(path):
    tensors = read(path)
    for weight, scale in (("w13", "s13"), ("w2", "s2")):
        assert torch.equal(convert_weight_packed(tensors[weight]), tensors[f"packed.{weight}"])
        assert torch.equal(convert_scale_packed(tensors[scale]), tensors[f"packed.{scale}"])
