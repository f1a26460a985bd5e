"""What vLLM's CPU backend does to a 4-bit layer at every start, and what it would save to store the result.

    python processed_weights.py [N K]

Needs vLLM for CPUs, on a CPU with AVX-512. The layer has random weights.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

GROUP = 128


def stored_layer(n, k):
    """As a compressed-tensors checkpoint stores it: eight codes in a word, along the input channels."""
    layer = torch.nn.Module()
    layer.bias = None
    tensors = {
        "w": (torch.randint(-(2**31), 2**31, (n, k // 8)).to(torch.int32), {"packed_dim": 1}),
        "s": ((torch.rand(n, k // GROUP) / 64).to(torch.bfloat16), {}),
    }
    for name, (data, dims) in tensors.items():
        parameter = torch.nn.Parameter(data, requires_grad=False)
        vars(parameter).update(input_dim=1, output_dim=0, **dims)
        setattr(layer, name, parameter)
    layer.z = None
    return layer


def kernel_of(n, k):
    from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel
    from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
        MPLinearLayerConfig,
    )
    from vllm.scalar_type import scalar_types

    config = MPLinearLayerConfig(
        full_weight_shape=(k, n), partition_weight_shape=(k, n),
        weight_type=scalar_types.uint4b8, act_type=torch.bfloat16, group_size=GROUP, zero_points=False,
    )  # fmt: skip
    return CPUWNA16LinearKernel(config, "w", "s", "z")


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    n, k = map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (14336, 4096)
    kernel, layer = kernel_of(n, k), stored_layer(n, k)
    x = torch.randn(2, k).to(torch.bfloat16)
    before, begin = peak(), time.perf_counter()
    kernel.process_weights_after_loading(layer)
    seconds = time.perf_counter() - begin
    print(f"{n} x {k}, {n * k / 2**21:.0f} MiB in 4 bits")
    print(f"processed in {seconds:.2f} s, peak memory + {peak() - before:.0f} MiB")
    y = kernel.apply_weights(layer, x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.safetensors"
        save_file({name: getattr(layer, name).data.contiguous() for name in ("w", "s")}, path)
        begin = time.perf_counter()
        for name, data in load_file(path).items():
            getattr(layer, name).data = data
        seconds = time.perf_counter() - begin
        same = torch.equal(kernel.apply_weights(layer, x), y)
    print(f"stored and mapped again in {seconds:.4f} s; the outputs are {'the same' if same else 'others'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
