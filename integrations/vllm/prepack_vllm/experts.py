"""The method for a layer of experts: packed modules stacked as vLLM's op reads them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe import modular_kernel as mk
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import (
    make_moe_prepare_and_finalize_no_dp_ep,
)

from prepack_vllm.errors import CannotRunHere, Malformed, Unsupported
from prepack_vllm.expert_grid import DOWN, UP, ExpertGrid
from prepack_vllm.expert_kernels import EXPERT_KERNELS, ExpertsKernel
from prepack_vllm.expert_stacks import StackLoader
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import has_op
from prepack_vllm.layouts import TORCH_DTYPES, layout_of, module_parts
from prepack_vllm.linear import check_dtype
from prepack_vllm.loading import may_keep_tensors, why_not_inputs, why_not_pieces
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.own_tensors import claim
from prepack_vllm.parts import Along, Part, expert_bias

_SOURCE = "Load the source, which vLLM repacks itself"
# vLLM's method for unquantized experts takes more activations than its op has: GELU, in 0.32.
_PLAIN = (
    "vLLM may run the experts in bf16, in more memory: pack again with "
    "--scheme '[.]experts[.]=bf16'. Or load the source on a CPU on which vLLM runs it"
)
# By layout that vLLM has no op for experts for: what to do.
_HINTS = {
    "vllm-cpu/wna16": "Pack again with --scheme '[.]experts[.]=w4a8', which is how vLLM itself runs "
    "such experts",
    "zentorch/woq": "Pack again with --scheme '[.]experts[.]=w4a8', which is how vLLM itself runs "
    "such experts (symmetric ones)",
    "vllm-cpu/bf16-vnni": "Pack again with --fallback keep, or load the source",
}


@dataclass
class Stack:
    """gate and up, or down, of all experts: what a rank holds of them."""

    shards: tuple[str, ...]
    geometry: Geometry
    loaders: "list[ExpertPartLoader | StackLoader]"

    @property
    def prefix(self) -> str:
        return "w2" if self.shards == (DOWN,) else "w13"


class ExpertPartLoader:
    """Loads one part of all experts of a layer, each into its slice of the parameter."""

    supports_moe_loading = True  # vLLM asks

    def __init__(self, grid: ExpertGrid, part: Part, whole: Part, moe: FusedMoEConfig):
        self.grid = grid
        self.part = part
        self.whole = whole  # the part as it is stored for each expert
        self.ranks = moe.tp_size
        self.rank = moe.tp_rank
        self.loaded: set[tuple[str, int]] = set()

    def __call__(
        self,
        param: torch.nn.Parameter,
        loaded_weight: torch.Tensor,
        weight_name: str,
        shard_id: str,
        expert_id: int,
        return_success: bool = False,
    ) -> bool | None:
        shard_id = shard_id.removeprefix("gpt_oss_")  # as vLLM's class for that model says it
        self._check(loaded_weight, self.grid.modules[shard_id][expert_id])
        stored = loaded_weight.reshape(self.whole.shape)
        destination = param.data[expert_id]
        if shard_id == DOWN:
            stored = self._share(stored, self.whole.by_inputs)
            if self.part.name == "bias" and self.rank > 0:
                stored = torch.zeros_like(stored)  # vLLM adds up what the ranks return
        else:
            stored = self._share(stored, self.whole.by_outputs)
            destination = self._place(destination, shard_id)
        destination.copy_(stored)
        self.loaded.add((shard_id, expert_id))
        return True if return_success else None

    def _place(self, destination: torch.Tensor, shard: str) -> torch.Tensor:
        """Of gate or up, or of both together, in an expert's w13."""
        if self.grid.together:
            return destination
        assert isinstance(self.whole.by_outputs, Along)
        axis = self.whole.by_outputs.axis
        half = destination.shape[axis] // 2
        return destination.narrow(axis, half if shard == UP else 0, half)

    def _check(self, stored: torch.Tensor, module: PackedModule) -> None:
        expected = (TORCH_DTYPES[self.whole.dtype], self.whole.shape_in_file)
        if (stored.dtype, tuple(stored.shape)) != expected:  # copy_ would convert and repeat it
            raise Malformed(
                module.name,
                f"part {self.part.name} is of another dtype or shape",
                found=f"{stored.dtype} {list(stored.shape)}",
                expected=f"{expected[0]} {list(expected[1])}",
            )

    def _share(self, stored: torch.Tensor, division: Any) -> torch.Tensor:
        """What of an expert's part this rank holds."""
        if self.ranks == 1 or not isinstance(division, Along):
            return stored
        size = stored.shape[division.axis] // self.ranks
        return stored.narrow(division.axis, self.rank * size, size)

    def check_loaded(self, shards: tuple[str, ...]) -> None:
        """vLLM itself does not notice what is missing, and computes with what is there."""
        for shard in shards:
            for expert, module in enumerate(self.grid.modules[shard]):
                if (shard, expert) not in self.loaded:
                    raise Malformed(
                        module.name,
                        f"part {self.part.name} was not loaded",
                        hint="Copy the folder again, or pack the checkpoint again",
                    )


class PrepackExpertsMethod(FusedMoEMethodBase):
    """Of one layer whose experts are all packed, in one layout."""

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(self, moe: FusedMoEConfig, manifest: Manifest, grid: ExpertGrid, on_loaded: Any):
        super().__init__(moe)
        self.manifest = manifest
        self.grid = grid
        self.on_loaded = on_loaded
        kernel = EXPERT_KERNELS.get(grid.layout)
        if kernel is None:
            raise Unsupported(
                grid.first.name,
                f"vLLM has no op for experts in {grid.layout}",
                expected=f"one of {', '.join(EXPERT_KERNELS)}",
                hint=_HINTS.get(grid.layout, _SOURCE),
            )
        self.experts_cls = kernel.cls  # vLLM asks whether it is monolithic
        self._kernel_type = kernel
        self._kernel: ExpertsKernel | None = None
        self.stacks: list[Stack] = []
        self.weights: list[torch.Tensor] = []  # w13 and w2, as the op sees them

    def create_weights(
        self,
        layer: RoutedExperts,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        check_dtype(self.manifest, self.grid.first, params_dtype)
        self._check_parallelism()
        self._check_op()
        _check_router(layer, self.grid.first)
        inner = intermediate_size_per_partition
        self.grid.check_count(num_experts)
        self.grid.check(self.manifest, inner * self.moe.tp_size, hidden_size)
        w13, w2 = self.grid.stacks
        self.stacks = [
            self._make_stack(layer, num_experts, w13, 2 * inner, hidden_size),
            self._make_stack(layer, num_experts, w2, hidden_size, inner),
        ]
        self._kernel = self._kernel_type(
            *(stack.geometry for stack in self.stacks), self.grid.together
        )
        why_not = self._why_not(layer)
        if why_not is not None:
            raise Unsupported(
                self.grid.first.name,
                f"vLLM's op for experts in {self.grid.layout} cannot run this layer: {why_not}",
                hint=_PLAIN,
            )

    def _why_not(self, layer: torch.nn.Module) -> str | None:
        assert self._kernel is not None
        if self.moe.has_bias != self.grid.biases:
            have = "biases, and the packed ones none" if self.moe.has_bias else "none"
            return f"the model's experts have {have}"
        if self.grid.biases and not self._kernel.takes_biases:
            return "the experts have biases"
        if self.moe.swiglu_limit is not None:
            return f"the model cuts activations off at {self.moe.swiglu_limit}"
        if layer.apply_router_weight_on_input and not self._takes_weighted_inputs():
            return "the model multiplies the inputs of experts with the router's weights"
        return self._kernel.why_not() or self._kernel.why_not_layer(self.moe)

    def _takes_weighted_inputs(self) -> bool:
        """vLLM multiplies inputs where there is one expert per token only."""
        return self._kernel_type.takes_weighted_inputs and self.moe.experts_per_token == 1

    def _check_parallelism(self) -> None:
        parallel = self.moe.moe_parallel_config
        if parallel.use_ep or parallel.dp_size > 1 or parallel.pcp_size > 1:
            raise Unsupported(
                self.grid.first.name,
                "packed experts run with tensor parallelism only",
                found=f"expert parallelism {'on' if parallel.use_ep else 'off'}, data parallelism "
                f"{parallel.dp_size}, context parallelism {parallel.pcp_size}",
                hint="Leave out --enable-expert-parallel, and the others",
            )

    def _check_op(self) -> None:
        if not has_op(self._kernel_type.op):
            raise CannotRunHere(
                self.grid.first.name,
                f"experts in {self.grid.layout} need the op {self._kernel_type.op}, which the "
                "runtime for this CPU lacks",
                hint="docs/layouts/ says which CPU each layout runs on",
            )

    def _make_stack(
        self, layer: torch.nn.Module, experts: int, shards: tuple[str, ...], n: int, k: int
    ) -> Stack:
        """With `n` output channels and `k` input channels of each expert on this rank."""
        module = self.grid.modules[shards[0]][0]
        if self.grid.stored is not None:
            module = self.grid.stored[1 if shards == (DOWN,) else 0]
        whole, whole_parts = module_parts(module, self.manifest)
        why_not = why_not_inputs(whole_parts, k) if k != whole.k else None
        why_not = why_not or why_not_pieces(whole_parts, [n // len(shards)] * len(shards))
        if why_not is not None:
            raise Unsupported(
                module.name,
                f"a rank would hold {why_not} ({module.layout})",
                hint="Use less tensor parallelism" if self.moe.tp_size > 1 else _SOURCE,
            )
        stack = Stack(shards, whole.piece(n, k), [])
        parts = layout_of(module).parts_of(stack.geometry)
        if self.grid.biases:
            dtype = "F32" if layout_of(module).kernel.f32_bias else self.manifest.activation_dtype
            parts.append(expert_bias(n, dtype))
            whole_parts.append(expert_bias(whole.n, dtype))
        for part, whole_part in zip(parts, whole_parts, strict=True):
            # Memory is used only where it is written, so never where a file is mapped instead.
            data = torch.empty((experts, *part.shape), dtype=TORCH_DTYPES[part.dtype])
            parameter = torch.nn.Parameter(data, requires_grad=False)
            layer.register_parameter(f"{stack.prefix}_{part.name}", parameter)
            if self.grid.stored is not None:
                pieces = 0 if shards == (DOWN,) else len(shards)
                own = StackLoader(module, part, whole_part, self.moe, parameter, pieces)
                claim(layer, self.manifest, {module.parts[part.name].name: own})
                stack.loaders.append(own)
            else:
                loader = ExpertPartLoader(self.grid, part, whole_part, self.moe)
                parameter.weight_loader = loader  # type: ignore[attr-defined]
                stack.loaders.append(loader)
        return stack

    def mapped_tensors(self) -> Iterator[str]:
        """Of the folder: those that are parameters as they are, not copied."""
        if self.moe.tp_size == 1 and may_keep_tensors():
            for stack in self.grid.stored or ():
                yield from (part.name for part in stack.parts.values())

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """There is nothing to process: has all of it come?"""
        self.on_loaded()
        kernel = self._kernel
        assert kernel is not None
        parts = []
        self.weights = []
        for stack in self.stacks:
            for loader in stack.loaders:
                loader.check_loaded(stack.shards)
            held = {
                loader.part.name: getattr(layer, f"{stack.prefix}_{loader.part.name}").data
                for loader in stack.loaders
            }
            parts.append(held)
            self.weights.append(kernel.weight(held["weight"], stack.geometry))
        self.moe_quant_config = kernel.quant_config(*parts)
        experts = kernel.cls(moe_config=self.moe, quant_config=self.moe_quant_config)
        self.moe_kernel = mk.FusedMoEKernel(
            make_moe_prepare_and_finalize_no_dp_ep(kernel.cls.is_monolithic()), experts
        )
        if kernel.cls.is_monolithic():  # routes itself, and takes from the layer how
            experts.process_weights_after_loading(layer)

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> FusedMoEQuantConfig | None:
        return self.moe_quant_config

    def apply(
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> Any:
        assert self.moe_kernel is not None
        return self.moe_kernel.apply(
            x,
            *self.weights,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            activation=layer.activation,
            global_num_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
            apply_router_weight_on_input=layer.apply_router_weight_on_input,
            shared_experts=shared_experts,
            shared_experts_input=shared_experts_input,
        )

    def apply_monolithic(
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        router_logits: torch.Tensor,
        input_ids: torch.Tensor | None = None,
    ) -> Any:
        assert self.moe_kernel is not None
        return self.moe_kernel.apply_monolithic(
            x,
            *self.weights,
            router_logits,
            activation=layer.activation,
            global_num_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
            apply_router_weight_on_input=layer.apply_router_weight_on_input,
            num_expert_group=layer.num_expert_group,
            topk_group=layer.topk_group,
            e_score_correction_bias=layer.e_score_correction_bias,
            routed_scaling_factor=layer.routed_scaling_factor,
            routing_sink=layer.routing_sink,
        )


def _check_router(layer: RoutedExperts, module: PackedModule) -> None:
    """vLLM itself finds out at the first token, by an assertion."""
    knows = layer.use_grouped_topk or layer.custom_routing_function is not None
    if not knows and layer.scoring_func not in ("softmax", "sqrtsoftplus"):
        raise Unsupported(
            module.name,
            f"vLLM's router for CPUs knows {layer.scoring_func} scores for groups of experts only, "
            "and this model has no groups: vLLM runs none of its checkpoints on CPUs",
        )
