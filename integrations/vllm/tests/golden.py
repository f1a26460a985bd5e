"""The files of fixtures/golden, as modules. For tests only."""

from pathlib import Path

import torch
from safetensors import safe_open

from prepack_vllm.geometry import Geometry
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.manifest import Activations

GOLDEN = Path(__file__).resolve().parents[3] / "fixtures" / "golden"
EXPERTS = sorted((GOLDEN.parent / "golden_experts").glob("vllm-cpu_mxfp4_*.safetensors"))
DYNAMIC = Activations("int", symmetric=True, dynamic=True)
W4A8 = ("vllm-cpu/int4-w4a8", "zentorch/da8w4")
W8A8 = ("vllm-cpu/int8-vnni", "zentorch/int8")
DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def files_of(layout: str) -> list[Path]:
    return sorted(GOLDEN.glob(f"{layout.replace('/', '_')}_*.safetensors"))


# Of every layout that the plug-in knows.
CASES = sorted(
    ((layout, path) for layout in LAYOUTS if "arm" not in layout for path in files_of(layout)),
    key=lambda case: case[1].name,
)
IDS = [path.stem for _, path in CASES]


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


def inputs_of(tensors, geometry):
    """Codes as bits, scales and zero points [N, G], as numpy's."""
    zeros = tensors.get("zero_points")
    if zeros is None:
        zeros = torch.full((geometry.n, geometry.groups), 8, dtype=torch.uint8)
    codes = tensors["codes"]
    codes = codes.view(torch.uint8) if codes.dtype == torch.float8_e4m3fn else codes
    scales = tensors["scales"].reshape(tensors["scales"].size(0), -1)
    if geometry.granularity == "block":
        scales = scales.repeat_interleave(geometry.scale_rows, 0)[: geometry.n]
    return codes.numpy(), scales.numpy(), zeros.numpy()


def packed_parts(layout, tensors, geometry):
    """As the golden file's packer wrote them."""
    return {
        part.name: tensors["packed." + part.name.removesuffix("_inv")].reshape(part.shape)
        for part in LAYOUTS[layout].parts_of(geometry)
    }


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)
