"""What runs the packed experts of a layer: vLLM's own classes, one per layout.

The ops read w13, gate and up one after the other along their output channels, and w2, down, of all
experts of the layer stacked. Each expert's bytes are those of its modules, as prepack packs them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe import modular_kernel as mk
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEQuantConfig,
    biased_moe_quant_config,
    fp8_w8a16_moe_quant_config,
    int4_w4a16_moe_quant_config,
    int8_w8a8_moe_quant_config,
    mxfp4_w4a16_moe_quant_config,
)
from vllm.model_executor.layers.fused_moe.experts.cpu_int4_moe import (
    CPUExpertsInt4 as ArmCPUExpertsInt4,
)
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import (
    ArmCPUExpertsInt8,
    ArmCPUUnquantizedExperts,
    CPUExpertsFp8,
    CPUExpertsInt4,
    CPUExpertsInt8,
    CPUExpertsMxfp4,
    ZenCPUExpertsInt8,
)
from vllm.model_executor.layers.fused_moe.experts.zentorch_moe import ZentorchExpertsInt4
from vllm.model_executor.layers.fused_moe.oracle.w4a8_int8 import make_w4a8_int8_moe_quant_config
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    QuantKey,
    kFp8Dynamic128Sym,
    kFp8Static128BlockSym,
    kInt4Static,
    kInt4W4A8StaticGroupSym,
    kInt8DynamicTokenSym,
    kInt8StaticChannelSym,
    kMxfp4Static,
)

from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import has_op

Parts = Mapping[str, torch.Tensor]

_FUSED_EXPERTS = "_C::fused_experts_cpu"
_ZENTORCH = "zentorch::zentorch_fused_moe"


class _AnyRouter:
    """The op is given experts and weights, which vLLM's CPURouter chooses."""

    @staticmethod
    def _supports_routing_method(*_: object) -> bool:
        return True


class _WhereTheOpIs(_AnyRouter):
    """vLLM takes its classes for this op on AMX machines only. The op runs where there is one."""

    @staticmethod
    def _supports_current_device() -> bool:
        return has_op(_FUSED_EXPERTS)

    def apply(self, **arguments: Any) -> None:
        if arguments["apply_router_weight_on_input"]:
            # vLLM has multiplied the inputs. The op would multiply the outputs, too.
            ones = torch.ones_like(arguments["topk_weights"])
            arguments |= {"topk_weights": ones, "apply_router_weight_on_input": False}
        super().apply(**arguments)  # type: ignore[misc]


class _Int4(_WhereTheOpIs, CPUExpertsInt4):
    pass


class _Int8(_WhereTheOpIs, CPUExpertsInt8):
    pass


class _Fp8(_WhereTheOpIs, CPUExpertsFp8):
    pass


class _Mxfp4(_WhereTheOpIs, CPUExpertsMxfp4):
    pass


class _ArmInt8(_AnyRouter, ArmCPUExpertsInt8):
    pass


class ExpertsKernel(ABC):
    """The experts of one layer. w13 and w2 are what a rank holds of each expert, w13 with gate and
    up one after the other or, if `together`, with alternating rows."""

    op: str
    cls: type[mk.FusedMoEExperts]
    keys: tuple[QuantKey | None, QuantKey | None]  # what vLLM's class asks for
    takes_biases = False
    takes_weighted_inputs = False  # multiplied with the router's weights, by vLLM or by the op

    def __init__(self, w13: Geometry, w2: Geometry, together: bool = False):
        self.w13 = w13
        self.w2 = w2
        self.together = together

    def why_not(self) -> str | None:
        """Why the op cannot run these experts, as far as vLLM's class does not say so."""
        return None

    def why_not_layer(self, moe: FusedMoEConfig) -> str | None:
        """Why vLLM's class cannot run a layer like that; None: it can."""
        if self.together != (moe.activation == MoEActivation.SWIGLUOAI):
            stored = "in alternating rows" if self.together else "apart"
            return f"gate and up are stored {stored}, and the activation is {moe.activation.value}"
        supported, reason = self.cls.is_supported_config(
            self.cls, moe, *self.keys, mk.FusedMoEActivationFormat.Standard
        )
        return None if supported else str(reason)

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        """[E, …] as the op wants to see it: the same bytes."""
        return packed

    @abstractmethod
    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        """Scales and zero points, as vLLM's class reads them."""


class Int4W4A8Experts(ExpertsKernel):
    op = _FUSED_EXPERTS
    takes_weighted_inputs = True
    cls = _Int4
    keys = (kInt4Static, None)

    def why_not(self) -> str | None:
        # The op reads the size of a group off the scales of w13, and uses it for w2, too.
        if self.w13.group_size == self.w2.group_size:
            return None
        return (
            f"groups of {self.w13.group_size} input channels in gate and up, of "
            f"{self.w2.group_size} in down, and {self.op} takes one size only"
        )

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return int4_w4a16_moe_quant_config(
            w1_scale=w13["weight_scale"],
            w2_scale=w2["weight_scale"],
            w1_zp=w13["weight_zero_point"],
            w2_zp=w2["weight_zero_point"],
            block_shape=[0, self.w13.group_size],
        )


class ArmInt4Experts(ExpertsKernel):
    """The op routes nothing itself; vLLM's class around it does. Inputs are multiplied with the
    router's weights by the op."""

    op = "_C::dynamic_4bit_int_moe"
    cls = ArmCPUExpertsInt4
    keys = (kInt4W4A8StaticGroupSym, None)
    takes_biases = True  # which the weights hold
    takes_weighted_inputs = True

    def why_not(self) -> str | None:
        if self.together:
            return "gate and up are stored in alternating rows"
        if self._group(self.w13) == self._group(self.w2):
            return None
        return (
            f"groups of {self.w13.group_size} input channels in gate and up, of "
            f"{self.w2.group_size} in down, and {self.op} takes one size only"
        )

    def _group(self, geometry: Geometry) -> int:
        return -1 if geometry.granularity == "channel" else geometry.group_size

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return packed.view(packed.size(0), -1)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        group = self._group(self.w13)
        return make_w4a8_int8_moe_quant_config((-1, 1) if group == -1 else (1, group))


class Int8Experts(ExpertsKernel):
    op = _FUSED_EXPERTS
    takes_weighted_inputs = True
    cls = _Int8
    keys = (kInt8StaticChannelSym, kInt8DynamicTokenSym)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return int8_w8a8_moe_quant_config(
            w1_scale=w13["weight_scale"],
            w2_scale=w2["weight_scale"],
            a1_scale=None,
            a2_scale=None,
            w1_bias=w13.get("bias"),
            w2_bias=w2.get("bias"),
            per_act_token_quant=True,
        )


class _NeonExperts(ExpertsKernel):
    """vLLM's op adds up in f32, and takes biases in the dtype of the activations."""

    takes_biases = True
    takes_weighted_inputs = True

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return packed.view(-1, geometry.n, geometry.k)


class Int8NeonExperts(_NeonExperts):
    op = "_C::cpu_fused_moe_int8"
    cls = _ArmInt8
    keys = (kInt8StaticChannelSym, kInt8DynamicTokenSym)
    quant_config = Int8Experts.quant_config


class Bf16NeonExperts(_NeonExperts):
    op = "_C::cpu_fused_moe"
    cls = ArmCPUUnquantizedExperts
    keys = (None, None)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return biased_moe_quant_config(w13.get("bias"), w2.get("bias"))


class Fp8Experts(ExpertsKernel):
    op = _FUSED_EXPERTS
    takes_weighted_inputs = True
    cls = _Fp8
    keys = (kFp8Static128BlockSym, kFp8Dynamic128Sym)

    def why_not(self) -> str | None:
        granularities = {self.w13.granularity, self.w2.granularity}
        if granularities != {"block"}:
            return f"scales per {max(granularities - {'block'})}, and {self.op} takes blocks only"
        if self.w13.scale_rows != self.w2.scale_rows:
            return (
                f"blocks of {self.w13.scale_rows} output channels in gate and up, of "
                f"{self.w2.scale_rows} in down, and {self.op} takes one size only"
            )
        return None

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return packed.view(-1, geometry.n, geometry.k)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return fp8_w8a16_moe_quant_config(
            w1_scale=w13["weight_scale_inv"],
            w2_scale=w2["weight_scale_inv"],
            block_shape=[self.w13.scale_rows, 128],
        )


class Mxfp4Experts(ExpertsKernel):
    op = _FUSED_EXPERTS
    takes_weighted_inputs = True
    cls = _Mxfp4
    keys = (kMxfp4Static, None)
    takes_biases = True
    # Of swiglu-oai, as vLLM has them in its own method for these experts.
    _ALPHA, _LIMIT = 1.702, 7.0

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return packed.view(-1, geometry.n, geometry.k // 2)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return mxfp4_w4a16_moe_quant_config(
            w1_scale=_rows_of_scales(w13["weight_scale"], self.w13),
            w2_scale=_rows_of_scales(w2["weight_scale"], self.w2),
            w1_bias=w13.get("bias"),
            w2_bias=w2.get("bias"),
            gemm1_alpha=self._ALPHA if self.together else None,
            gemm1_clamp_limit=self._LIMIT if self.together else None,
        )


def _rows_of_scales(packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """[E, N, G] as the op wants to see them: the same bytes."""
    return packed.view(-1, geometry.n, geometry.groups)


class ZentorchInt4Experts(ExpertsKernel):
    op = _ZENTORCH
    cls = ZentorchExpertsInt4
    keys = (kInt4Static, None)

    def why_not(self) -> str | None:
        # As vLLM has it: it never gives the op scales per channel.
        granularities = {self.w13.granularity, self.w2.granularity}
        if granularities == {"group"}:
            return None
        return f"scales per {max(granularities - {'group'})}, and {self.op} takes groups only"

    def weight(self, packed: torch.Tensor, geometry: Geometry) -> torch.Tensor:
        return packed.view(torch.int32)

    def quant_config(self, w13: Parts, w2: Parts) -> FusedMoEQuantConfig:
        return int4_w4a16_moe_quant_config(
            w1_scale=w13["weight_scale"],
            w2_scale=w2["weight_scale"],
            block_shape=[0, self.w13.group_size],
        )


class ZentorchInt8Experts(ExpertsKernel):
    op = _ZENTORCH
    cls = ZenCPUExpertsInt8
    keys = (kInt8StaticChannelSym, kInt8DynamicTokenSym)
    quant_config = Int8Experts.quant_config


# By layout. Those that are not here have no op for experts in vLLM.
EXPERT_KERNELS: dict[str, type[ExpertsKernel]] = {
    "vllm-cpu/int4-w4a8": Int4W4A8Experts,
    "vllm-arm/int4-w4a8": ArmInt4Experts,
    "vllm-arm/int8-neon": Int8NeonExperts,
    "vllm-arm/bf16-neon": Bf16NeonExperts,
    "vllm-cpu/int8-vnni": Int8Experts,
    "vllm-cpu/fp8-vnni": Fp8Experts,
    "vllm-cpu/mxfp4": Mxfp4Experts,
    "zentorch/da8w4": ZentorchInt4Experts,
    "zentorch/int8": ZentorchInt8Experts,
}
