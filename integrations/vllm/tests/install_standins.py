"""Registers the stand-ins of ops that this CPU or installation lacks. For tests only."""

import contextlib

import torch
from standins import (
    convert_scale_packed,
    convert_weight_packed,
    convert_weight_packed_scale_zp,
    cpu_gemm_wna16,
    fp8_scaled_mm_cpu,
    int4_scaled_mm_cpu,
    int8_scaled_mm_with_quant,
    weight_packed_linear,
    zentorch_dynamic_qlinear,
    zentorch_woq_linear,
    zentorch_woq_repack_weight,
)
from standins_experts import fused_experts_cpu, zentorch_fused_moe
from vllm import _custom_ops

from prepack_vllm.kernels import has_op

# From vLLM 0.33 on.
_MORE = ", int act_method" if hasattr(_custom_ops, "CPUActMethod") else ""
_OPS = {
    "_C": {
        "cpu_gemm_wna16(Tensor x, Tensor weight, Tensor(a!) y, Tensor scales, Tensor? zeros, "
        "Tensor? bias, SymInt pack_factor, str isa_hint) -> ()": cpu_gemm_wna16,
        "int4_scaled_mm_cpu(Tensor x, Tensor weight, Tensor zeros, Tensor scales, Tensor? bias) "
        "-> Tensor": int4_scaled_mm_cpu,
        "int8_scaled_mm_with_quant(Tensor x, Tensor weight, Tensor scales, Tensor? bias, "
        "ScalarType out_dtype, bool is_vnni) -> Tensor": int8_scaled_mm_with_quant,
        "fp8_scaled_mm_cpu(Tensor x, Tensor weight, Tensor scales, int[] block_size, Tensor? bias, "
        "ScalarType out_dtype, bool is_vnni) -> Tensor": fp8_scaled_mm_cpu,
        "weight_packed_linear(Tensor(a!) y, Tensor x, Tensor weight, Tensor? bias, bool is_vnni) "
        "-> ()": weight_packed_linear,
        "convert_weight_packed_scale_zp(Tensor qweight, Tensor qzeros, Tensor scales, "
        "int algorithm) -> (Tensor, Tensor, Tensor)": convert_weight_packed_scale_zp,
        "convert_weight_packed(Tensor weight) -> Tensor": convert_weight_packed,
        "convert_scale_packed(Tensor scale) -> Tensor": convert_scale_packed,
        "fused_experts_cpu(Tensor(a!) out, Tensor hidden_states, Tensor w1, Tensor w2, "
        "Tensor topk_weights, Tensor topk_ids, int moe_comp_method, Tensor? w1_scale, "
        "Tensor? w2_scale, Tensor? w1_zero, Tensor? w2_zero, Tensor? a1_scale, int[]? block_size, "
        f"Tensor? w1_bias, Tensor? w2_bias, float? alpha, float? limit, bool is_vnni{_MORE}) "
        "-> ()": fused_experts_cpu,
    },
    "zentorch": {
        "zentorch_woq_linear(Tensor x, Tensor weight, Tensor scales, Tensor? zeros, Tensor? bias) "
        "-> Tensor": zentorch_woq_linear,
        "zentorch_dynamic_qlinear(Tensor x, Tensor weight, Tensor scales, Tensor? bias, *, "
        "str zentorch_op_name='') -> Tensor": zentorch_dynamic_qlinear,
        "zentorch_woq_repack_weight(Tensor codes) -> Tensor": zentorch_woq_repack_weight,
        "zentorch_fused_moe(Tensor(a!) output, Tensor x, Tensor w13, Tensor w2, Tensor? w13_bias, "
        "Tensor? w2_bias, Tensor topk_weights, Tensor topk_ids, bool skip_weighted, str act, "
        "Tensor? w13_scales=None, Tensor? w2_scales=None, *, str zentorch_op_name='') "
        "-> ()": zentorch_fused_moe,
    },
}
_libraries: list[torch.library.Library] = []  # an op lives as long as its library object


def install() -> list[str]:
    """Registers the stand-ins of ops that are missing, and returns their names."""
    with contextlib.suppress(ImportError):
        import zentorch  # noqa: F401  its ops run on more CPUs than vLLM takes them on
    missing = []
    for namespace, ops in _OPS.items():
        for schema, function in ops.items():
            name = f"{namespace}::{schema.split('(')[0]}"
            if has_op(name):
                continue
            library = torch.library.Library(namespace, "FRAGMENT")
            library.define(schema)
            library.impl(schema.split("(")[0], function, "CPU")
            _libraries.append(library)
            missing.append(name)
    return missing


def register() -> None:
    """As a plugin of vLLM's, for the processes that it starts. run_tests makes it one."""
    from prepack_vllm.platform import load_ops

    load_ops()
    install()
