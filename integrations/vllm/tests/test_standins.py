"""Ops, real or stand-ins, against what the real ones made: fixtures/golden."""

from pathlib import Path

import pytest
import torch
from pack import PACK
from safetensors import safe_open
from standins import convert_scale_packed, convert_weight_packed
from standins_experts import fused_experts_cpu

from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.manifest import Activations

GOLDEN = Path(__file__).resolve().parents[3] / "fixtures" / "golden"
DYNAMIC = Activations("int", symmetric=True, dynamic=True)
W4A8 = ("vllm-cpu/int4-w4a8", "zentorch/da8w4")
W8A8 = ("vllm-cpu/int8-vnni", "zentorch/int8")
# Of the others the order of f32 sums is not known.
EXACT = ("vllm-cpu/wna16", *W4A8, *W8A8)
EXPERTS = sorted((GOLDEN.parent / "golden_experts").glob("*.safetensors"))
DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def golden_files():
    for layout in LAYOUTS:
        yield from (
            (layout, path) for path in GOLDEN.glob(f"{layout.replace('/', '_')}_*.safetensors")
        )


CASES = sorted(golden_files(), key=lambda case: case[1].name)


def read(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def geometry_of(layout, tensors):
    n, k = tensors["codes"].shape
    scales = tensors["scales"]
    granularity, scale_rows = "group", 1
    group_size = k // scales.size(1) if scales.dim() == 2 else k
    if layout == "vllm-cpu/fp8-vnni":
        rows = -(-n // scales.size(0))
        granularity, group_size, scale_rows = "block", 128, -(-rows // 32) * 32
    elif layout in W8A8:
        granularity, group_size = "channel", k
    activations = DYNAMIC if layout in W4A8 + W8A8 else None
    return Geometry(
        n, k, granularity, group_size, scale_rows, "zero_points" not in tensors, activations,
        DTYPES[tensors["x"].dtype],
    )  # fmt: skip


def packed_parts(layout, tensors, geometry):
    """As the golden file's packer wrote them."""
    return {
        part.name: tensors["packed." + part.name.removesuffix("_inv")].reshape(part.shape)
        for part in LAYOUTS[layout].parts_of(geometry)
    }


def test_there_are_golden_files_for_every_op_but_bf16_and_plain():
    assert len(CASES) == 39 + 28 + 11 + 11 + 32 + 15 + 10


@pytest.mark.parametrize("layout,path", CASES, ids=[path.stem for _, path in CASES])
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
    if layout in EXACT:
        assert torch.equal(y, expected)
        return
    # One place of bf16, and almost all the same.
    assert torch.allclose(y.float(), expected.float(), rtol=2.0**-7, atol=0)
    assert (y != expected).float().mean() <= 0.004


@pytest.mark.parametrize("layout,path", CASES, ids=[path.stem for _, path in CASES])
def test_closed_form_packs_what_the_real_packer_packed(layout, path):
    tensors = read(path)
    geometry = geometry_of(layout, tensors)
    expected = packed_parts(layout, tensors, geometry)
    zeros = tensors.get("zero_points")
    zeros = (
        torch.full((geometry.n, geometry.groups), 8, dtype=torch.uint8) if zeros is None else zeros
    )
    codes = tensors["codes"]
    codes = codes.view(torch.uint8) if codes.dtype == torch.float8_e4m3fn else codes
    scales = tensors["scales"].reshape(tensors["scales"].size(0), -1)
    if geometry.granularity == "block":
        scales = scales.repeat_interleave(geometry.scale_rows, 0)[: geometry.n]
    packed = PACK[layout](geometry, codes.numpy(), scales.numpy(), zeros.numpy())
    weight = packed["weight"].reshape(-1).view(torch.uint8)
    assert torch.equal(weight, expected["weight"].reshape(-1).view(torch.uint8))


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
    for op in (fused_experts_cpu, torch.ops._C.fused_experts_cpu):
        y = torch.empty_like(tensors["x"])
        op(
            y, tensors["x"], tensors["packed.w13"], tensors["packed.w2"], tensors["topk_weights"],
            tensors["topk_ids"], 4, tensors["packed.s13"], tensors["packed.s2"], None, None, None,
            None, tensors.get("b13"), tensors.get("b2"), alpha, limit, True,
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
