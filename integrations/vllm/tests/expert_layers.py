"""Layers of experts as vLLM makes them, without an engine. For tests only."""

import dataclasses
from types import SimpleNamespace

import torch
from tiny_models import QWEN3_MOE
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    RoutingMethodType,
)

from prepack_vllm.config import PrepackConfig

LAYER = "model.layers.0.mlp.experts"
MODEL = dataclasses.replace(QWEN3_MOE, layers=1)


def config_for(folder, target="vllm-cpu"):
    config = PrepackConfig(target)
    config.maybe_update_config(str(folder))
    return config


def moe_config(tp_size=1, tp_rank=0, **changes):
    parallel = dataclasses.replace(
        FusedMoEParallelConfig.make_no_parallel(), tp_size=tp_size, tp_rank=tp_rank
    )
    fields = {
        "num_experts": MODEL.experts, "num_local_experts": MODEL.experts,
        "num_logical_experts": MODEL.experts, "experts_per_token": 2, "hidden_dim": MODEL.hidden,
        "intermediate_size": MODEL.inner, "activation": MoEActivation.SILU, "device": "cpu",
        "routing_method": RoutingMethodType.Renormalize, "moe_parallel_config": parallel,
        "in_dtype": torch.bfloat16,
    }  # fmt: skip
    return FusedMoEConfig(**(fields | changes))


def layer_of(moe, **attributes):
    """vLLM's layer without what its constructor needs."""
    layer = RoutedExperts.__new__(RoutedExperts)
    torch.nn.Module.__init__(layer)
    vars(layer).update(
        layer_name=LAYER, moe_config=moe, ckpt_gate_proj_name="gate_proj",
        ckpt_up_proj_name="up_proj", ckpt_down_proj_name="down_proj",
        apply_router_weight_on_input=False, lora_base_layer_prefix="",
        is_fused_checkpoint_transposed=False,
        expert_map_manager=SimpleNamespace(num_fused_shared_experts=0), _expert_map=None,
        activation=moe.activation, global_num_experts=moe.num_experts, renormalize=True,
        scoring_func="softmax", use_grouped_topk=False,
        custom_routing_function=None, num_expert_group=None, topk_group=None,
        e_score_correction_bias=None, routed_scaling_factor=1.0, routing_sink=None,
    )  # fmt: skip
    vars(layer).update(attributes)
    return layer


def create(config, moe=None, dtype=torch.bfloat16, hidden=None, **attributes):
    moe = moe or moe_config()
    layer = layer_of(moe, **attributes)
    layer.quant_method = config.get_quant_method(layer, LAYER)
    layer.quant_method.create_weights(
        layer,
        num_experts=moe.num_experts,
        hidden_size=hidden or moe.hidden_dim,
        intermediate_size_per_partition=moe.intermediate_size // moe.tp_size,
        params_dtype=dtype,
    )
    return layer
