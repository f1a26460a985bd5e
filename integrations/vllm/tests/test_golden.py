"""Do the packers and ops of the installed versions make of the inputs of fixtures/golden what those of
the versions that wrote the files made of them? Stand-ins cannot tell, and are passed over."""

import pytest
import torch
from golden import (
    CASES,
    EXPERTS,
    IDS,
    bytes_of,
    files_of,
    geometry_of,
    inputs_of,
    packed_parts,
    read,
)

from prepack_vllm.kernels import has_op
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.layouts.layout import Probe

CODES = {torch.uint8: "u4", torch.int8: "s8", torch.float8_e4m3fn: "f8e4m3"}


def need(standins, *ops):
    """Stand-ins or missing ones prove nothing."""
    lacking = [op for op in ops if op in standins or not has_op(op)]
    if lacking:
        pytest.skip(f"no {lacking[0]} here")


def ids_of(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("layout,path", CASES, ids=IDS)
def test_the_packer_writes_the_same_bytes(layout, path, standins):
    packer = LAYOUTS[layout].packer
    if packer is None or not packer.runs():
        pytest.skip("nothing is packed")
    if packer.op is not None:
        need(standins, packer.op)
    tensors = read(path)
    geometry = geometry_of(layout, tensors)
    probe = Probe(geometry, CODES[tensors["codes"].dtype], *inputs_of(tensors, geometry))
    packed = packer.pack(probe)
    for name, part in packed_parts(layout, tensors, geometry).items():
        if path.stem == "zentorch_woq_f32-scales" and name == "weight_scale":
            continue  # vLLM gives zentorch scales in bf16 only
        assert torch.equal(bytes_of(packed[name]), bytes_of(part)), name


@pytest.mark.parametrize("path", EXPERTS, ids=ids_of(EXPERTS))
def test_the_packer_of_mxfp4_writes_the_same_bytes(path, standins):
    need(standins, "_C::convert_weight_packed", "_C::convert_scale_packed")
    tensors = read(path)
    for weight, scale in (("w13", "s13"), ("w2", "s2")):
        packed = torch.ops._C.convert_weight_packed(tensors[weight])
        assert torch.equal(bytes_of(packed), bytes_of(tensors[f"packed.{weight}"]))
        packed = torch.ops._C.convert_scale_packed(tensors[scale])
        assert torch.equal(bytes_of(packed), bytes_of(tensors[f"packed.{scale}"]))


# Layouts that are known and never chosen, which the plug-in does not load.

FP8_W8A8 = files_of("vllm-cpu/fp8-w8a8-plain")
ONEDNN = files_of("onednn/w8a8")
INT8_DLP = files_of("zentorch/int8-dlp")


def test_there_are_golden_files():
    assert (len(FP8_W8A8), len(ONEDNN), len(INT8_DLP)) == (6, 10, 5)


@pytest.mark.parametrize("path", FP8_W8A8, ids=ids_of(FP8_W8A8))
def test_fp8_with_fp8_activations(path, standins):
    need(standins, "_C::float8_linear_prepack_cpu", "_C::fp8_scaled_mm_with_quant")
    tensors = read(path)
    weight, scales = torch.ops._C.float8_linear_prepack_cpu(tensors["codes"], tensors["scales"])
    assert torch.equal(bytes_of(weight), bytes_of(tensors["packed.weight"]))
    assert torch.equal(bytes_of(scales), bytes_of(tensors["packed.weight_scale"]))
    x = tensors["x"]
    y = torch.ops._C.fp8_scaled_mm_with_quant(
        x, None, True, weight, scales, tensors.get("packed.bias"), x.dtype
    )
    assert torch.equal(y, tensors["y"])


@pytest.mark.parametrize("path", ONEDNN, ids=ids_of(ONEDNN))
def test_int8_with_onednn(path, standins):
    """The bytes are in a handler, which nobody can look into: its products only."""
    from vllm import _custom_ops

    need(standins, "_C::create_onednn_scaled_mm_handler")
    tensors = read(path)
    x, zeros = tensors["x"], tensors.get("x.zero_point")
    static = tensors["x.scale"].dim() == 1
    quantized, scale, zero = _custom_ops.onednn_scaled_int8_quant(
        x, tensors["x.scale"] if static else None, zeros if static else None, zeros is None
    )
    assert torch.equal(quantized, tensors["x.quantized"])
    scales = tensors["packed.weight_scale"]
    handler = _custom_ops.create_onednn_scaled_mm(
        tensors["codes"].t(), scales, x.dtype, not static, zeros is not None, 32
    )
    sums = tensors["codes"].sum(1, dtype=torch.float32)[None] * scales
    y = torch.empty_like(tensors["y"])
    adjustment = None if zeros is None else sums
    _custom_ops.onednn_scaled_mm(
        handler, quantized, y, scale, zero, adjustment, tensors.get("packed.bias")
    )
    assert torch.equal(y, tensors["y"])


@pytest.mark.parametrize("path", INT8_DLP, ids=ids_of(INT8_DLP))
def test_int8_as_zentorch_packs_it_for_itself(path, standins):
    need(standins, "zentorch::zentorch_weight_prepack_for_dynamic_qlinear")
    tensors = read(path)
    packed = torch.ops.zentorch.zentorch_weight_prepack_for_dynamic_qlinear(tensors["codes"])
    storage = torch.empty(0, dtype=torch.uint8).set_(packed.untyped_storage())
    assert torch.equal(storage, bytes_of(tensors["packed.weight"]))
    y = torch.ops.zentorch.zentorch_dynamic_qlinear(
        tensors["x"], packed, tensors["packed.weight_scale"], None, is_weight_prepacked=True
    )
    assert torch.equal(y, tensors["y"])
