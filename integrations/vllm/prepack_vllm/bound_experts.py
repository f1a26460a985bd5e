"""The op of a layer of experts with its operands, outside of a model, for `prepack tune`."""

import math
from collections.abc import Callable

import torch
from vllm.model_executor.layers.fused_moe import modular_kernel as mk
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import (
    make_moe_prepare_and_finalize_no_dp_ep,
)
from vllm.utils.torch_utils import set_default_torch_dtype

from prepack_vllm.activations import ExpertNames
from prepack_vllm.bound_kernel import read_parts
from prepack_vllm.errors import CannotRunHere, Malformed, Unsupported
from prepack_vllm.expert_kernels import EXPERT_KERNELS
from prepack_vllm.geometry import Geometry, geometry_of
from prepack_vllm.kernels import has_op
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.parts import Along, Part, expert_bias

Experts = list[list[PackedModule]]  # of each expert: gate and up, or down
Parts = dict[str, torch.Tensor]


class Mixture:
    """Some experts of a layer, which stand for all `count` of them."""

    def __init__(self, manifest: Manifest, name: str, count: int, top_k: int):
        self.manifest = manifest
        self.name = name
        self.count = count
        self.top_k = top_k
        names = ExpertNames(manifest.modules)
        self._gate_up = _modules(manifest, names, name, "gate_up", count)
        self._down = _modules(manifest, names, name, "down", count)
        first = self._gate_up[0][0]
        self.layout = first.layout
        kernel = EXPERT_KERNELS.get(self.layout)
        if kernel is None:
            raise Unsupported(name, f"vLLM has no op for experts in {self.layout}")
        if not has_op(kernel.op):
            raise CannotRunHere(
                name,
                f"{self.layout} needs the op {kernel.op}, which vLLM's library for this CPU lacks",
            )
        self.op = kernel.op
        self._kernel = kernel(
            self._geometry(self._gate_up), self._geometry(self._down), len(self._gate_up[0]) == 1
        )

    def _geometry(self, experts: Experts) -> Geometry:
        geometry = geometry_of(experts[0][0], self.manifest.activation_dtype)
        return geometry.piece(geometry.n * len(experts[0]), geometry.k)

    @property
    def hidden(self) -> int:
        return self._kernel.w13.k

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPES[self.manifest.activation_dtype]

    @property
    def bytes(self) -> int:
        """Of all experts."""
        of_sample = sum(
            math.prod(part.shape) * TORCH_DTYPES[part.dtype].itemsize
            for experts in (self._gate_up, self._down)
            for modules in experts
            for module in modules
            for part in module.parts.values()
        )
        return of_sample * self.count // len(self._gate_up)

    def _moe_config(self) -> FusedMoEConfig:
        return FusedMoEConfig(
            num_experts=self.count,
            num_local_experts=self.count,
            num_logical_experts=self.count,
            experts_per_token=self.top_k,
            hidden_dim=self.hidden,
            intermediate_size=self._kernel.w2.k,
            activation=MoEActivation.SWIGLUOAI if self._kernel.together else MoEActivation.SILU,
            device="cpu",
            routing_method=RoutingMethodType.Renormalize,
            moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
            in_dtype=self.dtype,
        )

    def bind(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The op on memory of its own. Tokens go to all experts in turn, as evenly as that goes."""
        moe = self._moe_config()
        why_not = self._kernel.why_not() or self._kernel.why_not_layer(moe)
        if why_not is not None:
            raise Unsupported(self.name, f"{self.op} cannot run this layer: {why_not}")
        w13 = self._stack(self._gate_up, self._kernel.w13)
        w2 = self._stack(self._down, self._kernel.w2)
        weights = [
            self._kernel.weight(w13["weight"], self._kernel.w13),
            self._kernel.weight(w2["weight"], self._kernel.w2),
        ]
        with set_default_torch_dtype(self.dtype):
            experts = self._kernel.cls(
                moe_config=moe, quant_config=self._kernel.quant_config(w13, w2)
            )
            monolithic = self._kernel.cls.is_monolithic()
            run = mk.FusedMoEKernel(make_moe_prepare_and_finalize_no_dp_ep(monolithic), experts)
        layer = {
            "activation": moe.activation,
            "global_num_experts": self.count,
            "expert_map": None,
            "apply_router_weight_on_input": False,
        }

        def product(x: torch.Tensor) -> torch.Tensor:
            ids, shares = self.routes(x.size(0))
            if monolithic:  # vLLM's class or the op chooses the experts
                return run.apply_monolithic(
                    x, *weights, _logits(ids, self.count), routing_sink=None, **layer
                )
            return run.apply(
                x,
                *weights,
                topk_weights=shares,
                topk_ids=ids,
                shared_experts=None,
                shared_experts_input=None,
                **layer,
            )

        return product

    def routes(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The experts of each row, and their weights."""
        ids = torch.arange(rows * self.top_k, dtype=torch.int32) % self.count
        shares = torch.full((rows, self.top_k), 1 / self.top_k, dtype=torch.float32)
        return ids.view(rows, self.top_k), shares

    def _stack(self, experts: Experts, geometry: Geometry) -> Parts:
        """w13 or w2 of all experts, as the op reads them."""
        held = [[read_parts(self.manifest, module) for module in one] for one in experts]
        parts = list(layout_of(experts[0][0]).parts_of(geometry))
        if "bias" in experts[0][0].parts:
            parts.append(expert_bias(geometry.n))
        stacked = {}
        for part in parts:
            each = [_side_by_side([one[part.name] for one in expert], part) for expert in held]
            stacked[part.name] = torch.stack([each[i % len(each)] for i in range(self.count)])
        return stacked


def _logits(ids: torch.Tensor, count: int) -> torch.Tensor:
    """With which a router chooses these experts, all with the same weight."""
    return torch.zeros(ids.size(0), count).scatter_(1, ids.long(), 1.0)


def _side_by_side(pieces: list[torch.Tensor], part: Part) -> torch.Tensor:
    """gate and up along their output channels."""
    if len(pieces) == 1 or not isinstance(part.by_outputs, Along):
        return pieces[0].reshape(part.shape)
    shape = list(part.shape)
    shape[part.by_outputs.axis] //= len(pieces)
    return torch.cat([piece.reshape(shape) for piece in pieces], part.by_outputs.axis)


def _modules(
    manifest: Manifest, names: ExpertNames, mixture: str, what: str, count: int
) -> Experts:
    found = []
    for expert in range(count):
        modules = [manifest.modules[name] for name in names.of(mixture, what, expert)]
        for module in modules:
            module_parts(module, manifest)  # its parts are those of its layout
        if modules:
            found.append(modules)
    if not found:
        raise Malformed(str(manifest.folder), f"the folder holds no expert of {mixture}")
    return found
