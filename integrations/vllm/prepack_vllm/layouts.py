"""The one table of layouts that this plugin runs."""

from dataclasses import dataclass

import torch

from prepack_vllm import kernels, parts
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.geometry import Geometry, geometry_of
from prepack_vllm.manifest import Manifest, PackedModule


@dataclass(frozen=True)
class Layout:
    id: str
    version: int
    fingerprint: str  # of that version, see docs/layouts/
    parts_of: parts.PartsOf
    kernel: type[kernels.Kernel]
    activation_dtypes: tuple[str, ...] = ("BF16",)


_TABLE = (
    Layout(
        "vllm-cpu/wna16", 1, "2a9146febf6fd3afaa0fe04ddd7db52b", parts.wna16, kernels.Wna16,
        ("BF16", "F16"),
    ),
    Layout(
        "vllm-cpu/int4-w4a8", 1, "6d1a2c81871574e44d2a337775a42d65", parts.int4_w4a8,
        kernels.Int4W4A8, ("BF16", "F16"),
    ),
    Layout(
        "vllm-cpu/int8-vnni", 1, "72ce775d7b6248b533a9a4c4fa27bf22", parts.int8_vnni,
        kernels.Int8Vnni,
    ),
    Layout(
        "vllm-cpu/int8-plain", 1, "8b8ec7cb48ef05e1015520d93b71449d", parts.int8_plain,
        kernels.Int8Plain, ("BF16", "F16", "F32"),
    ),
    Layout(
        "vllm-arm/int4-w4a8", 1, "72c83fe3c9efc1bfde6851d9eaf59b6b", parts.arm_int4_w4a8,
        kernels.ArmInt4W4A8, ("BF16", "F16", "F32"),
    ),
    Layout(
        "vllm-arm/int8-neon", 1, "816ab8de14f1e0aec0b25c31e4862614", parts.int8_neon,
        kernels.Int8Neon, ("BF16", "F16", "F32"),
    ),
    Layout(
        "vllm-arm/bf16-neon", 1, "9424d925f558fd080b570355e4ce6e35", parts.bf16_neon,
        kernels.Bf16Neon,
    ),
    Layout(
        "vllm-arm/int8-plain", 1, "8b8ec7cb48ef05e1015520d93b71449d", parts.arm_int8_plain,
        kernels.ArmInt8Plain, ("BF16", "F16", "F32"),
    ),
    Layout(
        "vllm-cpu/fp8-vnni", 1, "298fccdddd426fa5a5fbe65912678391", parts.fp8_vnni,
        kernels.Fp8Vnni,
    ),
    Layout(
        "vllm-cpu/bf16-vnni", 1, "6284404cce48c1f3f2edcfb0f4f79d5a", parts.bf16_vnni,
        kernels.Bf16Vnni,
    ),
    Layout("vllm-cpu/mxfp4", 1, "f66d99b20452d499a80dc7b7bea38138", parts.mxfp4, kernels.Mxfp4),
    Layout(
        "plain/bf16", 1, "ec8dc038fc969fe23d903d3927b29fe2", parts.plain_bf16, kernels.PlainBf16
    ),
    Layout(
        "plain/bf16-conv1d", 1, "20024c8ba59a5bc6f491a8ad714fb758", parts.plain_bf16_conv1d,
        kernels.PlainBf16Conv1d,
    ),
    Layout(
        "zentorch/woq", 1, "9289e960e382bd625dbd2e000b4eeddb", parts.zentorch_woq,
        kernels.ZentorchWoq,
    ),
    Layout(
        "zentorch/da8w4", 1, "b6de090e2638673fefada29e5a3745da", parts.zentorch_da8w4,
        kernels.ZentorchDynamic,
    ),
    Layout(
        "zentorch/int8", 1, "9655458f2cb835e1864cc8fc146481a5", parts.zentorch_int8,
        kernels.ZentorchDynamic,
    ),
)  # fmt: skip

LAYOUTS = {layout.id: layout for layout in _TABLE}

TORCH_DTYPES = {
    "U8": torch.uint8,
    "I8": torch.int8,
    "I32": torch.int32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
}


def layout_of(module: PackedModule) -> Layout:
    layout = LAYOUTS.get(module.layout)
    if layout is None:
        raise Unsupported(
            module.name,
            "this plugin does not run the module's layout",
            found=module.layout,
            expected=f"one of {', '.join(LAYOUTS)}",
        )
    return layout


def module_parts(module: PackedModule, manifest: Manifest) -> tuple[Geometry, list[parts.Part]]:
    """What the layout says the module consists of, after the manifest was held against it. Of a
    stack of experts: what each of them does."""
    geometry = geometry_of(module, manifest.activation_dtype)
    layout = layout_of(module)
    if issubclass(layout.kernel, kernels.Int8Plain) and module.activations is None:
        raise Malformed(module.name, "the module has no quantized activations")
    expected = layout.parts_of(geometry)
    names = {part.name for part in expected} | ({"bias"} if geometry.bias else set())
    if names != set(module.parts):
        raise Malformed(
            module.name,
            f"these are not the parts of {module.layout}",
            found=sorted(module.parts),
            expected=sorted(names),
        )
    stack = (module.experts,) if module.experts else ()
    for part in expected:
        entry = module.parts[part.name]
        shape = (*stack, *part.shape_in_file)
        if (entry.dtype, entry.shape) != (part.dtype, shape):
            raise Malformed(
                module.name,
                f"part {part.name} does not fit {module.layout}",
                found=f"{entry.dtype} {list(entry.shape)}",
                expected=f"{part.dtype} {list(shape)}",
            )
    return geometry, expected
