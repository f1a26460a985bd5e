#!/usr/bin/env python3
"""Multiplies with a linear layer of a packed folder by zentorch's own op, without vLLM.

    prepack convert SOURCE -o packed --target zentorch
    python zentorch_linear.py packed [MODULE]

The op gets the mapped file as it is; its result is compared with that of the weights, dequantized
here by the formulas of docs/layouts/.

Exit codes: 0 the result is right; 1 it is wrong; 2 usage; 3 the folder is not sound; 6 zentorch or
the CPU cannot do it here.
"""

import argparse
import sys

import numpy

import prepack

NOT_HERE = 6
ROWS = 4
LEAST_SQNR_DB = 30  # wrong bytes give less than 10; 8-bit activations some 40
OPS = {
    "zentorch/woq": "zentorch_woq_linear",
    "zentorch/da8w4": "zentorch_dynamic_qlinear",
    "zentorch/int8": "zentorch_dynamic_qlinear",
}


class NotHere(Exception):
    """A library or the CPU is not what the op needs."""


def load_op(layout):
    """torch and the op that reads `layout`."""
    try:
        import torch
        import zentorch  # noqa: F401  its ops appear with it
    except (ImportError, OSError) as error:
        raise NotHere(f"{error}. pip install torch zentorch") from error
    if "avx512" not in torch.backends.cpu.get_cpu_capability().lower():
        raise NotHere(
            f"zentorch's kernels need AVX-512; torch sees {torch.backends.cpu.get_cpu_capability()}"
        )
    op = getattr(torch.ops.zentorch, OPS[layout], None)
    if op is None:
        raise NotHere(f"zentorch {zentorch.__version__} has no {OPS[layout]}")
    return torch, op


def multiply(op, layout, x, parts):
    """y = x · Wᵀ + bias by zentorch."""
    bias = parts.get("bias")
    if layout == "zentorch/woq":
        # [K/8, N] with strides (1, K/8): the op wants the transposed view, not other bytes.
        return op(x, parts["weight"].t(), parts["weight_scale"], parts.get("weight_zero_point"), bias)
    return op(x, parts["weight"], parts["weight_scale"], bias)


def floats(part):
    """float64 of a part in BF16 or F32."""
    bits = part.numpy()
    if part.dtype == "BF16":
        return (bits.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)
    return bits.astype(numpy.float64)


def codes(module):
    """The integers of the weights, [N, K]."""
    stored = module.parts["weight"].numpy()
    if module.layout == "zentorch/int8":
        return stored
    low_first = stored.view(numpy.uint8)  # nibble n · K + k, the even one in the low half
    nibbles = numpy.stack([low_first & 15, low_first >> 4], axis=-1).reshape(module.shape)
    # Without zero points they are two's complement.
    return nibbles if "weight_zero_point" in module.parts else (nibbles ^ 8).astype(numpy.int8) - 8


def dequantize(module):
    """The weights, [N, K]."""
    scales = floats(module.parts["weight_scale"])  # [G, N], or [N]
    groups = module.shape[1] // module.group_size

    def per_input(values):
        return numpy.repeat(values.reshape(groups, module.shape[0]), module.group_size, axis=0).T

    weights = codes(module).astype(numpy.float64)
    if "weight_zero_point" in module.parts:
        weights -= per_input(module.parts["weight_zero_point"].numpy())
    return weights * per_input(scales)


def sqnr_db(found, expected):
    noise = numpy.square(found - expected).sum()
    return numpy.inf if noise == 0 else 10 * numpy.log10(numpy.square(expected).sum() / noise)


def check(module):
    """SQNR of zentorch's result for random inputs."""
    torch, op = load_op(module.layout)
    parts = module.as_torch()
    x = torch.randn(ROWS, module.shape[1], generator=torch.Generator().manual_seed(1)).bfloat16()
    if "input_order" in parts:  # the weights are in another order than the model's inputs
        x = x[:, parts["input_order"]].contiguous()
    expected = x.double().numpy() @ dequantize(module).T
    if "bias" in parts:
        expected += floats(module.parts["bias"])
    return sqnr_db(multiply(op, module.layout, x, parts).double().numpy(), expected)


def choose(folder, name):
    """The module of that name, or the first one; None where there is none that zentorch reads."""
    for module in folder.values():
        if module.layout in OPS and name in (None, module.name):
            return module
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="made by prepack convert --target zentorch")
    parser.add_argument("module", nargs="?", help="its full name (default: the first)")
    options = parser.parse_args()
    try:
        module = choose(prepack.open(options.folder, target="zentorch"), options.module)
        if module is None:
            parser.error(f"{options.folder} has no module {options.module or 'for zentorch'}")
        found = check(module)
    except prepack.FolderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except NotHere as error:
        print(f"error: not run: {error}", file=sys.stderr)
        return NOT_HERE
    print(f"{module.name}  {module.layout}  {OPS[module.layout]}: {found:.1f} dB")
    return 0 if found >= LEAST_SQNR_DB else 1


if __name__ == "__main__":
    sys.exit(main())
