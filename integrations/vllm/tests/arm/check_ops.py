"""Holds folders packed for vllm-arm against torch's ops for Arm, module by module.

    python check_ops.py FOLDER...

Runs on an Arm machine, or under qemu-user on any other (docs/arm.md), with torch, numpy and xxhash; vLLM need not be
there. Of every module in vllm-arm/int4-w4a8 it reads codes, scales and bias by the closed form, lets torch's own packer
pack them, and demands the same bytes. Then the plug-in's kernel multiplies with the bytes of the folder, mapped from the
file: torch's op must give the same output, bit for bit, on what its packer made, and the product in f64 about the same.
"""

import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from prepack_vllm import closed_forms, reference  # noqa: E402
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts  # noqa: E402
from prepack_vllm.manifest import read_manifest  # noqa: E402

ROWS = (1, 3, 8)  # tokens: the op has a kernel for single rows and one for several
LEAST_SQNR = 30  # dB: 8-bit activations leave about 40


def mapped(manifest, entry):
    """A tensor of a packed folder, as it lies in the file."""
    bytes_ = torch.from_file(
        str(manifest.folder / entry.file), shared=False,
        size=(manifest.folder / entry.file).stat().st_size, dtype=torch.uint8,
    )  # fmt: skip
    header = int.from_bytes(bytes_[:8].numpy().tobytes(), "little")
    begin, end = _offsets(bytes_[8 : 8 + header], entry.name)
    data = bytes_[8 + header + begin : 8 + header + end]
    return data.view(TORCH_DTYPES[entry.dtype]).view(entry.shape)


def _offsets(header, name):
    import json

    return json.loads(header.numpy().tobytes())[name]["data_offsets"]


def packed_by_torch(g, parts):
    """From the codes, scales and bias that the closed form reads."""
    weights = reference.weights("vllm-arm/int4-w4a8", g, parts)
    place = closed_forms.arm_int4_nibble(g.n, g.k, g.group_size)
    codes = closed_forms.read_nibbles(parts["weight"].numpy(), place) ^ 8
    ints = codes.astype(np.int64) - 8
    scales = np.zeros((g.n, g.groups))
    for group in range(g.groups):  # of any code that is not zero
        columns = slice(group * g.group_size, (group + 1) * g.group_size)
        largest = np.abs(ints[:, columns]).argmax(1) + group * g.group_size
        rows = np.arange(g.n)
        scales[:, group] = weights[rows, largest] / np.where(ints[rows, largest] == 0, 1, ints[rows, largest])
    dtype = torch.float32 if g.groups == 1 else torch.bfloat16
    return torch.ops.aten._dyn_quant_pack_4bit_weight(
        torch.from_numpy(codes[:, 0::2] | codes[:, 1::2] << 4), torch.from_numpy(scales).to(dtype),
        parts.get("bias"), g.group_size, g.k, g.n,
    )  # fmt: skip


def check(manifest, module):
    g, _ = module_parts(module, manifest)
    parts = {name: mapped(manifest, entry) for name, entry in module.parts.items()}
    theirs = packed_by_torch(g, parts)
    assert torch.equal(theirs.view(torch.uint8).flatten(), parts["weight"].flatten()), "other bytes"
    kernel = layout_of(module).kernel
    ours, own = kernel(g, parts), kernel(g, parts | {"weight": theirs})
    worst = float("inf")
    for rows in ROWS:
        x = torch.randn(rows, g.k).to(TORCH_DTYPES[manifest.activation_dtype])
        y = ours(x, parts.get("bias"))
        assert torch.equal(y, own(x, parts.get("bias"))), "another output"
        exact = reference.product("vllm-arm/int4-w4a8", g, {k: v for k, v in parts.items() if k != "input_order"}, x)
        error = ((y.double().numpy() - exact) ** 2).sum()
        worst = min(worst, 10 * np.log10((exact**2).sum() / error))
    assert worst > LEAST_SQNR, f"{worst:.1f} dB"
    return worst


def main():
    torch.manual_seed(1)
    count, worst = 0, float("inf")
    for folder in sys.argv[1:]:
        manifest = read_manifest(pathlib.Path(folder))
        for module in manifest.modules.values():
            if module.layout != "vllm-arm/int4-w4a8" or module.experts:
                continue
            worst = min(worst, check(manifest, module))
            count += 1
    assert count > 0, "no module in vllm-arm/int4-w4a8"
    print(f"{count} modules: the bytes of torch's packer, the outputs of its op; at least {worst:.1f} dB")


if __name__ == "__main__":
    main()
