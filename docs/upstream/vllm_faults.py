"""Faults of vLLM's CPU kernels, each in a few lines. Needs vLLM for CPUs; a CPU with AVX-512 and BF16.

    python vllm_faults.py

Prints for each what was found, and "fault" or "as it should be". Exit code 1 if there is a fault.
"""

import subprocess
import sys

import torch

CPU = torch.ops._C


def decibels(y, expected):
    noise = (y.double() - expected).square().sum()
    return 10 * torch.log10(expected.square().sum() / noise).item()


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def fp8_zeros_are_not_zero():
    """The decoder of fp8_scaled_mm_cpu takes every code for a normal number, zeros and subnormals too."""
    weight = torch.zeros(32, 128).to(torch.float8_e4m3fn)
    x = torch.ones(1, 128, dtype=torch.bfloat16)
    packed = CPU.convert_weight_packed(weight)
    y = CPU.fp8_scaled_mm_cpu(x, packed, torch.ones(1, 1), [32, 128], None, x.dtype, True)
    found = y.abs().max().item()
    return found != 0, f"128 weights of 0 times 1 are {found}"


def int4_in_groups(k, group):
    """A module of 4-bit weights, packed as vLLM's kernel packs it: its SQNR in dB."""
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel
    from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
        MPLinearLayerConfig,
    )
    from vllm.scalar_type import scalar_types

    n = 32
    config = MPLinearLayerConfig(
        (k, n), (k, n), scalar_types.uint4b8, torch.bfloat16, group, zero_points=False
    )
    ok, why = CPUWNA16LinearKernel.can_implement(config)
    if not ok:
        return f"refused: {why}"
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 16, (n, k), dtype=torch.int32, generator=generator)
    scales = (torch.rand(n, k // group, generator=generator) / 64 + 1 / 64).to(torch.bfloat16)
    words = sum(codes[:, i::8] << (4 * i) for i in range(8)).to(torch.int32)
    layer = torch.nn.Module()
    layer.bias = layer.z = None
    layer.w = torch.nn.Parameter(words.t().contiguous(), requires_grad=False)
    layer.s = torch.nn.Parameter(scales.t().contiguous(), requires_grad=False)
    try:
        CPUWNA16LinearKernel(config, "w", "s", "z")._process_gptq_weights_w4a8(layer)
    except RuntimeError as error:
        return f"accepted, and fails at load: {str(error).splitlines()[0]}"
    x = random(2, k).to(torch.bfloat16)
    y = CPU.int4_scaled_mm_cpu(x, layer.w, layer.z, layer.s, None)
    weights = (codes.double() - 8) * scales.double().repeat_interleave(group, 1)
    return decibels(y, x.double() @ weights.t())


def groups_that_the_4_bit_kernel_cannot_read_are_accepted():
    """CPUWNA16LinearKernel.can_implement asks for even groups; the kernel for 8-bit activations needs
    groups that 4 divides, of at most 128 or of multiples of 128."""
    found = {group: int4_in_groups(k, group) for k, group in ((384, 128), (384, 192), (128, 2))}
    bad = any(not (isinstance(value, float) and value > 30) for value in found.values())
    text = [
        f"{g}: {value:.1f} dB" if isinstance(value, float) else f"{g}: {value}"
        for g, value in found.items()
    ]
    return bad, "groups of " + ", ".join(text) + "; 40 expected"


ENDS = {
    "fp8_scaled_mm_cpu, N = 48": """
w = torch.ops._C.convert_weight_packed(torch.ones(48, 128).to(torch.float8_e4m3fn))
x = torch.ones(1, 128, dtype=torch.bfloat16)
torch.ops._C.fp8_scaled_mm_cpu(x, w, torch.ones(1, 1), [64, 128], None, x.dtype, True)""",
    "int8_scaled_mm_with_quant, f16": """
w = torch.ops._C.convert_weight_packed(torch.ones(32, 32, dtype=torch.int8))
x = torch.ones(1, 32, dtype=torch.float16)
torch.ops._C.int8_scaled_mm_with_quant(x, w, torch.ones(32), None, x.dtype, True)""",
}
START = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
try:
    exec({body!r})
except RuntimeError as error:
    print("refused:", str(error).splitlines()[0])
"""


def checks_in_parallel_regions_end_the_process():
    """TORCH_CHECK throws inside of an OpenMP region, where nothing can catch it."""
    found, ended = [], False
    for name, body in ENDS.items():
        command = [sys.executable, "-c", START.format(body=body)]
        result = subprocess.run(command, capture_output=True, text=True)
        ended |= result.returncode < 0
        how = f"signal {-result.returncode}" if result.returncode < 0 else "goes on"
        found.append(f"{name}: {how}")
    return ended, "; ".join(found)


CHECKS = (
    fp8_zeros_are_not_zero,
    groups_that_the_4_bit_kernel_cannot_read_are_accepted,
    checks_in_parallel_regions_end_the_process,
)


def main() -> int:
    import vllm
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    print(f"vLLM {vllm.__version__}, torch {torch.__version__}")
    faults = 0
    for check in CHECKS:
        fault, found = check()
        faults += fault
        print(f"{'fault' if fault else 'as it should be'}: {check.__name__}: {found}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
