"""Heads that prepack packed although no quantizer touched them: blocks of bf16.

The parameter has the shape of a plain weight, so the model may have made it without asking the
plug-in (gpt-oss): the method then takes over before anything is loaded.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
)

from prepack_vllm.errors import Malformed
from prepack_vllm.kernels import has_op
from prepack_vllm.layouts import module_parts
from prepack_vllm.layouts.vnni import Bf16Vnni, unpack_vnni
from prepack_vllm.linear import check_dtype
from prepack_vllm.loading import may_keep_tensors
from prepack_vllm.manifest import Manifest, PackedModule


def take_heads(model: torch.nn.Module, config: Any) -> None:
    """Gives heads that have vLLM's own method the one of the plug-in. `config` is vLLM's
    quantization config, of whatever method."""
    head_method = getattr(config, "head_method", None)
    if head_method is None:
        return
    for name, layer in model.named_modules():
        if not isinstance(layer, ParallelLMHead):
            continue
        if isinstance(layer.quant_method, UnquantizedEmbeddingMethod):
            method = head_method(name)
            if method is not None:
                method.take_over(layer)
                layer.quant_method = method


class PackedHeadMethod(LinearMethodBase):
    """The weight is the mapped tensor, in blocks. It is unpacked, and goes vLLM's own way, where
    this CPU has no op for blocks, or the layer is no whole one: on several ranks, or padded."""

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(self, manifest: Manifest, module: PackedModule, on_loaded: Callable[[], None]):
        self.manifest = manifest
        self.module = module
        self.on_loaded = on_loaded
        self.loader: _HeadLoader | None = None
        self.kernel: Bf16Vnni | None = None

    def create_weights(self, layer: torch.nn.Module, *sizes: Any, **attributes: Any) -> None:
        UnquantizedEmbeddingMethod().create_weights(layer, *sizes, **attributes)
        self.take_over(layer)

    def take_over(self, layer: torch.nn.Module) -> None:
        check_dtype(self.manifest, self.module, layer.weight.dtype)
        if (self.module.n, self.module.k) != (layer.org_vocab_size, layer.weight.shape[1]):
            raise Malformed(
                self.module.name,
                "the model's layer has another shape than the packed weights",
                found=f"N = {self.module.n}, K = {self.module.k}",
                expected=f"N = {layer.org_vocab_size}, K = {layer.weight.shape[1]}",
                hint="config.json and the weights do not belong together",
            )
        self.loader = _HeadLoader(self.module, layer.weight, layer.weight.weight_loader)
        layer.weight.weight_loader = self.loader

    def mapped_tensors(self) -> Iterator[str]:
        if self.loader is not None and self.loader.maps:
            yield self.module.parts["weight"].name

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        self.on_loaded()
        assert self.loader is not None
        if not self.loader.loaded:
            raise Malformed(
                self.module.name,
                "part weight was not loaded",
                hint="Copy the folder again, or pack the checkpoint again",
            )
        if self.loader.in_blocks:
            geometry, _ = module_parts(self.module, self.manifest)
            self.kernel = Bf16Vnni(geometry, {"weight": layer.weight.data})
        else:
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self.kernel is None:
            return layer.cpu_linear(x, layer.weight, bias)
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        y = self.kernel(rows, None if bias is None else bias.float())
        return y.reshape(*x.shape[:-1], y.shape[-1])


class _HeadLoader:
    def __init__(
        self, module: PackedModule, weight: torch.nn.Parameter, load: Callable[..., None]
    ):
        whole = tuple(weight.shape) == (module.n, module.k)
        self.in_blocks = whole and has_op(Bf16Vnni.ops[0])
        self.maps = self.in_blocks and may_keep_tensors()
        self.load = load
        self.loaded = False

    def __call__(self, parameter: torch.nn.Parameter, stored: torch.Tensor) -> None:
        self.loaded = True
        if self.maps:
            parameter.data = stored
        elif self.in_blocks:
            parameter.data.copy_(stored)
        else:
            self.load(parameter, unpack_vnni(stored))
