"""Leads vLLM to kernels that it takes on other CPUs only. For tests only.

vLLM chooses some on an AMX machine, and zentorch's on an AMD CPU with AVX-512. The choice is forced;
packing and computing are vLLM's own.
"""

import os
from types import SimpleNamespace
from unittest.mock import patch

from vllm.model_executor.kernels.linear.mixed_precision import zentorch as zentorch_4_bits
from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled_mm
from vllm.model_executor.kernels.linear.scaled_mm import zentorch as zentorch_8_bits
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.fused_moe.experts import cpu_moe

from prepack_vllm import platform


def take_zentorch(monkeypatch, *more):
    """vLLM's linear kernels for zentorch, those of the modules `more`, and nothing else of it: the
    rest has no stand-ins. Where zentorch runs by itself, nothing is to be done."""
    if platform.zentorch_runs():
        return
    cpu = SimpleNamespace(is_cpu=lambda: True, is_zen_cpu=lambda: True)
    linear = (zentorch_4_bits, zentorch_8_bits)
    for module in linear:
        monkeypatch.setattr(module, "current_platform", cpu)
    for module in (*linear, *more):
        monkeypatch.setattr(module, "has_zentorch_op", lambda names: True)
    monkeypatch.setattr(platform, "zentorch_runs", lambda: True)


# Set to what `register` is to lead to, in the processes that vLLM starts.
OWN_PATH_VARIABLE = "PREPACK_TESTS_OWN_PATH"


def take_mxfp4_experts(setattr):
    cls = cpu_moe.CPUExpertsMxfp4
    setattr(cls, "_supports_current_device", staticmethod(lambda: True))


def register():
    """As a plug-in of vLLM's. run_tests makes it one."""
    if os.environ.get(OWN_PATH_VARIABLE) == "mxfp4":
        take_mxfp4_experts(setattr)


def take_int8(monkeypatch):
    monkeypatch.setattr(scaled_mm, "check_cpu_sgl_kernel", lambda n, k, dtype: True)
    kernel = scaled_mm.CPUInt8ScaledMMLinearKernel
    apply = kernel._apply_weights_sgl

    def apply_to_rows(self, layer, x, bias=None):
        """vLLM 0.32 gives the op x as it is, and the op takes rows only: Whisper's are apart."""
        return apply(self, layer, x.reshape(-1, x.shape[-1]), bias).reshape(*x.shape[:-1], -1)

    monkeypatch.setattr(kernel, "_apply_weights_sgl", apply_to_rows)


def take_plain(monkeypatch):
    """For weights in bf16 of 1 MiB and more, which `--fuse` packs, the op that vLLM takes for small
    ones on an AMX machine; with zentorch, too, whose op vLLM takes for all of them otherwise."""
    monkeypatch.setattr(utils, "check_cpu_sgl_kernel", lambda n, k, dtype: n * k >= 1 << 19)
    dispatch = utils.dispatch_cpu_unquantized_gemm

    def dispatch_past_zentorch(layer, remove_weight):
        if layer.weight.ndim != 2 or layer.weight.numel() < 1 << 19:
            return dispatch(layer, remove_weight)
        with patch.object(utils.current_platform, "is_zen_cpu", lambda: False):
            return dispatch(layer, remove_weight)

    monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", dispatch_past_zentorch)


def take_fp8_blocks(monkeypatch):
    kernel = scaled_mm.CPUFp8BlockScaledMMKernel
    monkeypatch.setattr(kernel, "is_supported", classmethod(lambda cls, _=None: (True, None)))


def take_experts(monkeypatch):
    """vLLM's classes for the ops of its own library, wherever these run, and whatever chooses the
    experts: that happens before the op."""
    for cls in (cpu_moe.CPUExpertsInt4, cpu_moe.CPUExpertsInt8, cpu_moe.CPUExpertsFp8):
        monkeypatch.setattr(cls, "_supports_current_device", staticmethod(lambda: True))
        monkeypatch.setattr(cls, "_supports_routing_method", staticmethod(lambda *_: True))
