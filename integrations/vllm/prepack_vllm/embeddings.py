"""Embeddings and heads that passed through: vLLM's own method, without what a packed folder spares.

vLLM copies them, and packs the embedding for a product that only a head computes.
"""

from collections.abc import Callable

import torch
from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)

from prepack_vllm.loading import may_keep_tensors


def map_embeddings(model: torch.nn.Module) -> None:
    """Before the model is loaded. Its classes make most of these layers without asking the plug-in
    for a method."""
    for layer in model.modules():
        if not isinstance(layer, VocabParallelEmbedding):
            continue
        if type(layer.quant_method) is not UnquantizedEmbeddingMethod:
            continue
        layer.quant_method = MappedEmbeddingMethod()
        loader = getattr(layer.weight, "weight_loader", None)
        if loader is not None and not isinstance(loader, _KeepWhole):  # of a head, it may be shared
            layer.weight.weight_loader = _KeepWhole(loader)


class MappedEmbeddingMethod(UnquantizedEmbeddingMethod):
    """The weight is the mapped tensor, where that is all of it."""

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if isinstance(layer, ParallelLMHead):
            super().process_weights_after_loading(layer)

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        if not hasattr(layer, "cpu_linear"):  # an embedding that is the head, too
            dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
        return super().apply(layer, x, bias)


class _KeepWhole:
    """A loader of vLLM, but for a tensor that is what the parameter would be a copy of."""

    def __init__(self, load: Callable[..., None]):
        self.load = load
        self.may_keep = may_keep_tensors()

    def __call__(self, parameter: torch.nn.Parameter, stored: torch.Tensor) -> None:
        alike = (stored.shape, stored.dtype) == (parameter.shape, parameter.dtype)
        if self.may_keep and alike and stored.is_contiguous():
            parameter.data = stored
        else:
            self.load(parameter, stored)
