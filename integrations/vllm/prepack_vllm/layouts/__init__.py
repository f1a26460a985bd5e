"""The one table of layouts that this plugin runs: all that it knows of a layout is in one file."""

import torch

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.geometry import Geometry, geometry_of
from prepack_vllm.layouts import (
    arm_int4,
    int4_w4a8,
    int8,
    mxfp4,
    neon,
    plain,
    vnni,
    wna16,
    zentorch,
)
from prepack_vllm.layouts.layout import Layout
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.parts import Part

_FILES = (wna16, int4_w4a8, int8, arm_int4, neon, vnni, mxfp4, plain, zentorch)
LAYOUTS = {layout.id: layout for file in _FILES for layout in file.LAYOUTS}

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


def module_parts(module: PackedModule, manifest: Manifest) -> tuple[Geometry, list[Part]]:
    """What the layout says the module consists of, after the manifest was held against it. Of a
    stack of experts: what each of them does."""
    geometry = geometry_of(module, manifest.activation_dtype)
    layout = layout_of(module)
    if issubclass(layout.kernel, int8.Int8Plain) and module.activations is None:
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
