"""The consumers' ops, one class per layout: given the parts of a module, it multiplies."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch

from prepack_vllm.geometry import Geometry

Parts = Mapping[str, torch.Tensor]


def has_op(name: str) -> bool:
    """Is the op `library::name` there? Libraries register theirs when they are loaded."""
    namespace, op = name.split("::")
    return hasattr(getattr(torch.ops, namespace), op)


def forget_weights() -> None:
    """zentorch keeps what it has made of a weight, by address and shape. Whoever puts other weights
    where freed ones were must say so, or its ops go on computing with the old ones."""
    for op in ("zentorch_clear_weight_cache", "zentorch_flush_moe_weight_cache"):
        if has_op(f"zentorch::{op}"):
            getattr(torch.ops.zentorch, op)()


class Kernel(ABC):
    """y = x · Wᵀ + bias of one packed module. x is [M, K], in the module's own order of K."""

    ops: tuple[str, ...] = ()  # without which the kernel cannot run
    runs_without_ops = False  # it can, in another way
    needs_zentorch = False
    needs_kleidiai = False
    weight_holds_bias = False  # the op adds it, and takes none
    f32_bias = False  # the op takes no bias in the dtype of the activations
    experts_only = False  # no linear layer can run with it
    cuts_fractions = False  # of activations, which others round to the nearest

    def __init__(self, geometry: Geometry, parts: Parts):
        self.geometry = geometry
        self.parts = parts

    @abstractmethod
    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor: ...

    def holds_weights_itself(self) -> bool:
        """Has the op made a copy of its own, so that the part can be freed?"""
        return False

    def exact_weights(self) -> torch.Tensor | None:
        """[N, K] in f32, where the op multiplies with others; None: it does not."""
        return None


class Wna16(Kernel):
    ops = ("_C::cpu_gemm_wna16",)

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        # The same bytes with both; what AMX does in f16 it would do wrong, says vLLM.
        amx = torch.cpu._is_amx_tile_supported() and geometry.activation_dtype == "BF16"
        self.isa_hint = "amx" if amx else "vec"

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        zeros = self.parts.get("weight_zero_point")
        torch.ops._C.cpu_gemm_wna16(
            x, self.parts["weight"], y, self.parts["weight_scale"], zeros, bias, 8, self.isa_hint
        )
        return y


class Int4W4A8(Kernel):
    ops = ("_C::int4_scaled_mm_cpu",)
    f32_bias = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.int4_scaled_mm_cpu(
            x,
            self.parts["weight"],
            self.parts["weight_zero_point"],
            self.parts["weight_scale"],
            bias,
        )


class ArmInt4W4A8(Kernel):
    """KleidiAI through torch, called as vLLM's own Dynamic4bitLinearKernel calls it."""

    ops = ("aten::_dyn_quant_matmul_4bit",)
    needs_kleidiai = True
    weight_holds_bias = True
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        # What the op takes as it is; other activations are widened.
        own = ("BF16", "F32") if geometry.groups == 1 else ("F32",)
        self.widens = geometry.activation_dtype not in own

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        g = self.geometry
        y = torch.ops.aten._dyn_quant_matmul_4bit(
            x.float() if self.widens else x, self.parts["weight"], g.group_size, g.k, g.n
        )
        return y.to(x.dtype)


class Int8Vnni(Kernel):
    ops = ("_C::int8_scaled_mm_with_quant",)
    f32_bias = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.int8_scaled_mm_with_quant(
            x, self.parts["weight"], self.parts["weight_scale"], bias, x.dtype, True
        )


class Int8Plain(Kernel):
    """oneDNN reorders the weights for the CPU when the handler is made: no bytes for that exist."""

    ops = ("_C::create_onednn_scaled_mm_handler", "_C::onednn_scaled_mm")

    def __init__(self, geometry: Geometry, parts: Parts):
        from vllm import _custom_ops

        super().__init__(geometry, parts)
        assert geometry.activations is not None
        self.symmetric = geometry.activations.symmetric
        self.dynamic = geometry.activations.dynamic
        self._ops = _custom_ops
        # The handler keeps a pointer to the scales: `parts` must hold them as long as it lives.
        self.handler = _custom_ops.create_onednn_scaled_mm(
            parts["weight"].t(),
            parts["weight_scale"],
            getattr(torch, _TORCH_NAMES[geometry.activation_dtype]),
            self.dynamic,
            not self.symmetric,
            32,
        )

    def holds_weights_itself(self) -> bool:
        return True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        q, scale, zero_point = self._ops.onednn_scaled_int8_quant(
            x, self.parts.get("input_scale"), self.parts.get("input_zero_point"), self.symmetric
        )
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        self._ops.onednn_scaled_mm(
            self.handler, q, y, scale, zero_point, self.parts.get("azp_adj"), bias
        )
        return y


class ArmInt8Plain(Int8Plain):
    cuts_fractions = True


class Fp8Vnni(Kernel):
    ops = ("_C::fp8_scaled_mm_cpu",)
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        self.per_channel = geometry.granularity == "channel"
        if geometry.granularity == "block":
            self.block = [geometry.scale_rows, 128]
        else:
            self.block = [-(-geometry.n // 32) * 32, 128]
        columns = -(-geometry.k // 128)
        if self.per_channel:  # vLLM loads with the default dtype of the activations
            self.scales = torch.ones(1, columns, dtype=torch.float32)
        else:
            self.scales = parts["weight_scale_inv"]
        self.weight = parts["weight"].view(geometry.n, geometry.k)

    def exact_weights(self) -> torch.Tensor | None:
        """The op takes codes for zeros that stand for very small numbers."""
        if self.per_channel:
            return None
        n, k = self.geometry.n, self.geometry.k
        codes = unpack_vnni(self.weight).float()
        rows, columns = self.block
        scales = self.scales.repeat_interleave(rows, 0)[:n].repeat_interleave(columns, 1)[:, :k]
        return codes * scales

    def _multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops._C.fp8_scaled_mm_cpu(
            x, self.weight, self.scales, self.block, bias, x.dtype, True
        )

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if not self.per_channel:
            return self._multiply(x, bias)
        # The op has no scales per channel. Rounded as vLLM 0.33 does it, which has a kernel for them.
        y = (self._multiply(x, None).float() * self.parts["weight_scale"]).to(x.dtype)
        return y if bias is None else y + bias.to(x.dtype)


def unpack_vnni(weight: torch.Tensor) -> torch.Tensor:
    """The plain weight [N, K] of one in blocks of 32 output channels by two input channels."""
    n, k = weight.shape
    return weight.view(n // 32, k // 2, 32, 2).transpose(1, 2).reshape(n, k)


class Bf16Vnni(Kernel):
    """A library without the op gets plain weights, a copy."""

    ops = ("_C::weight_packed_linear",)
    runs_without_ops = True
    f32_bias = True

    def __init__(self, geometry: Geometry, parts: Parts):
        super().__init__(geometry, parts)
        weight = parts["weight"].view(geometry.n, geometry.k)
        self.in_blocks = has_op(self.ops[0])
        self.weight = weight if self.in_blocks else unpack_vnni(weight)

    def holds_weights_itself(self) -> bool:
        return not self.in_blocks

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if not self.in_blocks:
            bias = None if bias is None else bias.to(x.dtype)
            return torch.nn.functional.linear(x, self.weight, bias)
        y = torch.empty((x.size(0), self.geometry.n), dtype=x.dtype)
        torch.ops._C.weight_packed_linear(y, x, self.weight, bias, True)
        return y


class Mxfp4(Kernel):
    """vLLM has an op for whole experts only, silu(gate) · up and down again. The module multiplies
    as the rows `up` of an expert with a constant gate, whose `down` picks its outputs."""

    ops = ("_C::fused_experts_cpu",)
    experts_only = True
    f32_bias = True
    _GATE = 64.0  # = silu(64) in f32

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        bias = torch.zeros(self.geometry.n) if bias is None else bias
        # The op returns as many channels as it gets.
        step = min(self.geometry.n, self.geometry.k // 32 * 32)
        columns = [
            self._multiply_rows(x, bias, begin, min(begin + step, self.geometry.n))
            for begin in range(0, self.geometry.n, step)
        ]
        return torch.cat(columns, 1)

    def _multiply_rows(
        self, x: torch.Tensor, bias: torch.Tensor, begin: int, end: int
    ) -> torch.Tensor:
        from vllm import _custom_ops

        rows, k = end - begin, self.geometry.k
        weight = self.parts["weight"].view(self.geometry.n, k // 2)[begin:end]
        scale = self.parts["weight_scale"].view(self.geometry.n, k // 32)[begin:end]
        w13 = torch.cat([torch.zeros_like(weight), weight])
        s13 = torch.cat([torch.full_like(scale, 127), scale])
        b13 = torch.cat([torch.full((rows,), self._GATE), bias[begin:end]])
        w2, s2 = _mxfp4_identity(k, rows)
        y = torch.empty_like(x)
        _custom_ops.fused_experts_cpu(
            y,
            x,
            w13[None],
            w2[None],
            torch.full((x.size(0), 1), 1 / self._GATE),
            torch.zeros((x.size(0), 1), dtype=torch.int32),
            _custom_ops.CPUQuantMethod.MXFP4,
            s13[None],
            s2[None],
            None,
            None,
            None,
            b13[None],
            torch.zeros(1, k),
        )
        return y[:, :rows]


def _mxfp4_identity(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and scales as packed: output channel i is input channel i, as far as there are."""
    byte = torch.arange(k) // 32 * 16 * k + torch.arange(k) // 2 * 32
    byte += torch.arange(k) % 16 * 2 + torch.arange(k) % 2
    weight = torch.zeros(n * k // 2, dtype=torch.uint8)
    weight[byte] = torch.where(torch.arange(k) // 16 % 2 == 0, 0x02, 0x20).to(torch.uint8)
    return weight.view(n, k // 2), torch.full((n, k // 32), 127, dtype=torch.uint8)


class _Neon(Kernel):
    """vLLM has an op for whole experts only, silu(gate) · up and down again. The module multiplies
    as `down` of an expert whose gate is constant, and whose `up` hands x on."""

    experts_only = True
    packer: str  # the op of _C that packs experts
    _GATE = 64.0  # = silu(64) in f32

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        n, k, rows = self.geometry.n, self.geometry.k, x.size(0)
        gate_up = torch.cat([torch.zeros(k, k), torch.eye(k)]).to(self.parts["weight"].dtype)[None]
        packed = torch.empty_like(gate_up)
        getattr(torch.ops._C, self.packer)(gate_up, packed, "neon")
        y = torch.empty((rows, n), dtype=x.dtype)
        getattr(torch.ops._C, self.ops[0].removeprefix("_C::"))(
            y,
            x,
            packed,
            self.parts["weight"].view(1, n, k),
            *self._scales(),
            torch.cat([torch.full((k,), self._GATE), torch.zeros(k)]).to(x.dtype)[None],
            None if bias is None else (bias * self._GATE)[None],
            torch.full((rows, 1), 1 / self._GATE),
            torch.zeros((rows, 1), dtype=torch.int32),
            False,
            "silu",
            "neon",
        )
        return y

    @abstractmethod
    def _scales(self) -> tuple[torch.Tensor, ...]:
        """Those of gate and up, and those of down, if the op takes any."""


class Int8Neon(_Neon):
    ops = ("_C::cpu_fused_moe_int8",)
    packer = "prepack_moe_weight_int8"

    def _scales(self) -> tuple[torch.Tensor, ...]:
        return torch.ones(1, 2 * self.geometry.k), self.parts["weight_scale"][None]


class Bf16Neon(_Neon):
    ops = ("_C::cpu_fused_moe",)
    packer = "prepack_moe_weight"

    def _scales(self) -> tuple[torch.Tensor, ...]:
        return ()


class PlainBf16(Kernel):
    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.parts["weight"], bias)


class PlainBf16Conv1d(Kernel):
    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.parts["weight"].t(), bias)


class ZentorchWoq(Kernel):
    ops = ("zentorch::zentorch_woq_linear",)
    needs_zentorch = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.zentorch.zentorch_woq_linear(
            x,
            self.parts["weight"].t(),
            self.parts["weight_scale"],
            self.parts.get("weight_zero_point"),
            bias,
        )


class ZentorchDynamic(Kernel):
    """W4A8 and W8A8: the op tells them apart by the shape of the weight."""

    ops = ("zentorch::zentorch_dynamic_qlinear",)
    needs_zentorch = True

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.zentorch.zentorch_dynamic_qlinear(
            x, self.parts["weight"], self.parts["weight_scale"], bias
        )


_TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
