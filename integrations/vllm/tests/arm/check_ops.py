"""Holds folders packed for vllm-arm against the ops that pack for Arm and multiply there, module by module.

    python check_ops.py [--library LIBRARY]... FOLDER...

Runs on an Arm machine, or under qemu-user on any other (docs/arm.md), with torch, numpy and xxhash. vLLM need not be
installed: its ops are in the libraries, `_C.abi3.so` and before it what that misses. Modules whose ops are not there
are counted as not run.

Of every module, and of every expert of a stack, it reads codes, scales and bias by the closed form, lets the runtime's
own packer pack them, and demands the same bytes. Then the plug-in's kernel multiplies with the bytes of the folder,
mapped from the file and not copied: the op must give the same output, bit for bit, on what its packer made, and the
product in f64 about the same.
"""

import argparse
import ctypes
import json
import pathlib
import sys
import time

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from prepack_vllm import closed_forms, reference  # noqa: E402
from prepack_vllm.kernels import has_op  # noqa: E402
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts  # noqa: E402
from prepack_vllm.layouts.arm_int4 import arm_int4_nibble  # noqa: E402
from prepack_vllm.layouts.neon import neon_element  # noqa: E402
from prepack_vllm.manifest import read_manifest  # noqa: E402

ROWS = (1, 3, 4, 8)  # tokens: ops have kernels for single rows and for several
LEAST_SQNR = 30  # dB: 8-bit activations leave about 40


class Mapped:
    """The tensors of a packed folder as they lie in its files."""

    def __init__(self, manifest):
        self.folder = manifest.folder
        self.files = {}

    def __call__(self, entry):
        if entry.file not in self.files:
            path = self.folder / entry.file
            data = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
            header = int.from_bytes(data[:8].numpy().tobytes(), "little")
            places = json.loads(data[8 : 8 + header].numpy().tobytes())
            self.files[entry.file] = data[8 + header :], places
        data, places = self.files[entry.file]
        begin, end = places[entry.name]["data_offsets"]
        return data[begin:end].view(TORCH_DTYPES[entry.dtype]).view(entry.shape)


def pack_int4(g, parts, weights):
    place = arm_int4_nibble(g.n, g.k, g.group_size)
    codes = closed_forms.read_nibbles(parts["weight"].numpy(), place) ^ 8
    grouped = codes.astype(np.int8).reshape(g.n, g.groups, g.group_size) - 8
    largest = np.abs(grouped).argmax(2)[:, :, None]  # a code that is not zero, if there is one
    steps = np.take_along_axis(grouped, largest, 2)[:, :, 0].astype(np.float64)
    values = np.take_along_axis(weights.reshape(grouped.shape), largest, 2)[:, :, 0]
    scales = np.divide(values, steps, out=np.zeros_like(values), where=steps != 0)
    return torch.ops.aten._dyn_quant_pack_4bit_weight(
        torch.from_numpy(codes[:, 0::2] | codes[:, 1::2] << 4),
        torch.from_numpy(scales).to(torch.float32 if g.groups == 1 else torch.bfloat16),
        parts.get("bias"), g.group_size, g.k, g.n,
    )  # fmt: skip


def pack_neon(g, parts, weights):
    inputs = 8 // parts["weight"].element_size()
    plain = closed_forms.read_elements(
        parts["weight"].view(torch.uint8).numpy(), neon_element(g.n, g.k, inputs),
        np.int8 if inputs == 8 else np.int16,
    )  # fmt: skip
    weight = torch.from_numpy(plain).view(parts["weight"].dtype)[None]
    packed = torch.empty_like(weight)
    pack = torch.ops._C.prepack_moe_weight_int8 if inputs == 8 else torch.ops._C.prepack_moe_weight
    pack(weight, packed, "neon")
    return packed


PACKERS = {
    "vllm-arm/int4-w4a8": pack_int4,
    "vllm-arm/int8-neon": pack_neon,
    "vllm-arm/bf16-neon": pack_neon,
}


def check(module, g, parts):
    """The worst SQNR of a module, or of one of its experts."""
    weights = reference.weights(module.layout, g, parts)
    theirs = PACKERS[module.layout](g, parts, weights).view(torch.uint8).flatten()
    assert torch.equal(theirs, parts["weight"].flatten().view(torch.uint8)), f"{module.name}: other bytes"
    kernel = layout_of(module).kernel
    ours = kernel(g, parts)
    assert ours.parts["weight"].data_ptr() == parts["weight"].data_ptr(), f"{module.name}: copied"
    own = kernel(g, parts | {"weight": theirs.view(parts["weight"].dtype)})
    x = torch.randn(max(ROWS), g.k).to(TORCH_DTYPES[g.activation_dtype])
    bias = parts.get("bias")
    exact = x.double().numpy() @ weights.T + (0 if bias is None else bias.double().numpy())
    worst = float("inf")
    for rows in ROWS:
        y = ours(x[:rows], bias)
        assert torch.equal(y, own(x[:rows], bias)), f"{module.name}: another output"
        error = ((y.double().numpy() - exact[:rows]) ** 2).sum()
        worst = min(worst, 10 * np.log10((exact[:rows] ** 2).sum() / error))
    assert worst > LEAST_SQNR, f"{module.name}: {worst:.1f} dB"
    return worst


def check_module(manifest, mapped, module):
    g, _ = module_parts(module, manifest)
    parts = {name: mapped(entry) for name, entry in module.parts.items()}
    parts.pop("input_order", None)  # x is drawn in the order of the module
    if not module.experts:
        return check(module, g, parts)
    return min(check(module, g, {name: part[e] for name, part in parts.items()}) for e in range(module.experts))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--library", action="append", default=[])
    arguments.add_argument("folders", nargs="+", type=pathlib.Path)
    options = arguments.parse_args()
    for library in options.library:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    torch.manual_seed(1)
    counts, not_run, worst = {}, 0, float("inf")
    for folder in options.folders:
        manifest = read_manifest(folder)
        mapped = Mapped(manifest)
        begin = time.monotonic()
        for module in manifest.modules.values():
            if module.layout not in PACKERS:
                continue
            if not all(has_op(op) for op in layout_of(module).kernel.ops):
                not_run += 1
                continue
            worst = min(worst, check_module(manifest, mapped, module))
            counts[module.layout] = counts.get(module.layout, 0) + 1
        print(f"{folder.name}: {time.monotonic() - begin:.0f} s", flush=True)
    assert counts, "no module whose ops are here"
    for layout, count in sorted(counts.items()):
        print(f"{layout}: {count} modules: the bytes of the runtime's packer, the outputs of its op on these")
    print(f"at least {worst:.1f} dB; {not_run} modules not run: their ops are not here")


if __name__ == "__main__":
    main()
