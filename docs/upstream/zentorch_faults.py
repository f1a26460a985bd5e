"""Faults of zentorch, each in a few lines. Needs torch and zentorch; a CPU with AVX-512.

    python zentorch_faults.py

Prints for each what was found, and "fault" or "as it should be". Exit code 1 if there is a fault.
"""

import sys

import torch
import zentorch

ZEN = torch.ops.zentorch


def decibels(y, expected):
    noise = (y.double() - expected).square().sum()
    return 10 * torch.log10(expected.square().sum() / noise).item()


def int8_module(n, k):
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-127, 128, (n, k), dtype=torch.int8, generator=generator)
    scales = (torch.rand(n, generator=generator) / 64 + 1 / 64).to(torch.bfloat16)
    x = torch.randn(2, k, generator=generator).to(torch.bfloat16)
    return codes, scales, x, x.double() @ (codes.double() * scales.double()[:, None]).t()


def weights_of_an_address_are_remembered():
    """Weights that are changed in place are multiplied as they were before."""
    codes, scales, x, expected = int8_module(64, 64)
    weight = codes.clone()
    ZEN.zentorch_dynamic_qlinear(x, weight, scales, None)
    weight.neg_()
    y = ZEN.zentorch_dynamic_qlinear(x, weight, scales, None)
    found = decibels(y, -expected)
    return not found > 30, f"after weight.neg_(): {found:.1f} dB against the new weights, 40 expected"


def packed_weights_of_large_layers_are_wrong():
    """zentorch_weight_prepack_for_dynamic_qlinear, where N is large and K above 2048."""
    found = {}
    for n, k in ((64, 4096), (2048, 2048), (2048, 4096)):
        codes, scales, x, expected = int8_module(n, k)
        packed = ZEN.zentorch_weight_prepack_for_dynamic_qlinear(codes)
        y = ZEN.zentorch_dynamic_qlinear(x, packed, scales, None, is_weight_prepacked=True)
        found[f"{n} x {k}"] = decibels(y, expected)
    text = ", ".join(f"{shape}: {value:.1f} dB" for shape, value in found.items())
    return not min(found.values()) > 30, text + "; 40 expected"


def scales_in_f16_are_misread():
    """zentorch_woq_linear takes scales in f16, and neither refuses nor converts them."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-8, 8, (64, 128), dtype=torch.int8, generator=generator)
    scales = torch.rand(1, 64, generator=generator) / 64 + 1 / 64
    x = torch.randn(2, 128, generator=generator).to(torch.bfloat16)
    weight = ZEN.zentorch_woq_repack_weight(codes)
    found = {}
    for dtype in (torch.bfloat16, torch.float16):
        held = scales.to(dtype)
        expected = x.double() @ (codes.double() * held.double().t()).t()
        try:
            y = ZEN.zentorch_woq_linear(x, weight.t(), held, None, None)
        except RuntimeError as error:
            return False, f"refused: {str(error).splitlines()[0]}"
        found[dtype] = decibels(y, expected)
    return not found[torch.float16] > 30, ", ".join(f"{d}: {f:.1f} dB" for d, f in found.items())


CHECKS = (
    weights_of_an_address_are_remembered,
    packed_weights_of_large_layers_are_wrong,
    scales_in_f16_are_misread,
)


def main() -> int:
    print(f"zentorch {zentorch.__version__}, torch {torch.__version__}")
    faults = 0
    for check in CHECKS:
        fault, found = check()
        faults += fault
        print(f"{'fault' if fault else 'as it should be'}: {check.__name__}: {found}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
