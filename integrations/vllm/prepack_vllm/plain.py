"""Plain weights that are stored fused: vLLM's own method, but for who loads them."""

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)

from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.own_tensors import claim_parameters


@register_weight_loader_v2_supported_method
class PlainFusedMethod(UnquantizedLinearMethod):
    def __init__(self, manifest: Manifest, module: PackedModule, on_loaded: Callable[[], None]):
        super().__init__()
        self.manifest = manifest
        self.module = module
        self.on_loaded = on_loaded

    def create_weights(self, layer: torch.nn.Module, *sizes: Any, **attributes: Any) -> None:
        super().create_weights(layer, *sizes, **attributes)
        claim_parameters(layer, self.manifest, self.module)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        self.on_loaded()
        super().process_weights_after_loading(layer)
