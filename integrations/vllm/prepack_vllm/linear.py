"""The linear method: packed modules as vLLM's layers."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    LinearMethodBase,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.parameter import BasevLLMParameter

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.layouts import TORCH_DTYPES
from prepack_vllm.loading import BiasLoader, PartLoader, ShardId, index_of, missing_modules
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.own_tensors import claim_parameters
from prepack_vllm.piece import Piece, can_be_one, make_piece

_READ_BY_ATTENTION = "_cpu_skip_gemm_dispatch"


@register_weight_loader_v2_supported_method
class PrepackLinearMethod(LinearMethodBase):
    """Of one layer, which may consist of several modules side by side: q, k and v, gate and up.

    Modules that are alike are one parameter and one call of a kernel; others have theirs each.
    """

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(
        self, manifest: Manifest, modules: list[PackedModule], on_loaded: Callable[[], None]
    ):
        self.manifest = manifest
        self.modules = modules
        self.on_loaded = on_loaded
        self.pieces: list[Piece] = []
        self.bias_loader: BiasLoader | None = None
        self.output_order: torch.Tensor | None = None
        self.attention_reads = False  # the weights, once, when the model has been loaded

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        self._check(layer, input_size, output_size, params_dtype)
        load = extra_weight_attrs["weight_loader"]
        k = input_size_per_partition
        # A module that is stored fused is cut like modules side by side where there are ranks.
        sizes = list(output_partition_sizes)
        if len(self.modules) == 1 and sum(sizes) == self.modules[0].n:
            sizes = [sum(sizes)]
        if len(self.modules) == 1 or can_be_one(self.modules, self.manifest, sizes):
            self.pieces = [make_piece(self.manifest, self.modules, sizes, k, layer, load)]
        else:
            self._create_one_by_one(layer, sizes, k)
        self._take_bias(layer)
        if self.modules[0].recut:  # it is the only one
            claim_parameters(layer, self.manifest, self.modules[0])
        else:
            for module, shard in zip(self.modules, ("q", "k", "v"), strict=False):
                if self.manifest.is_own(module):
                    claim_parameters(layer, self.manifest, module, shard)

    def _check(
        self, layer: torch.nn.Module, input_size: int, output_size: int, dtype: torch.dtype
    ) -> None:
        check_dtype(self.manifest, self.modules[0], dtype)
        n = sum(module.n for module in self.modules)
        # With more ranks than heads vLLM counts the repeated heads of k and v, too.
        repeats = getattr(layer, "num_kv_head_replicas", 1) > 1
        if any(module.k != input_size for module in self.modules) or (
            n != output_size and not repeats
        ):
            raise Malformed(
                self.modules[0].name,
                "the model's layer has another shape than the packed weights",
                found=f"N = {n}, K = {self.modules[0].k}",
                expected=f"N = {output_size}, K = {input_size}",
                hint="config.json and the weights do not belong together",
            )

    def _create_one_by_one(self, layer: torch.nn.Module, sizes: list[int], k: int) -> None:
        names: set[str] = set()
        for index, (module, size) in enumerate(zip(self.modules, sizes, strict=True)):
            holder = torch.nn.Module()
            layer.add_module(f"prepack_{index}", holder)
            load = _ShardOfItsOwn(layer, index, size)
            piece = make_piece(self.manifest, [module], [size], k, holder, load)
            self.pieces.append(piece)
            names.update(loader.name for loader in piece.loaders)
        for name in sorted(names):
            router = BasevLLMParameter(
                data=torch.empty(0), weight_loader=_Router(name, self.pieces)
            )
            layer.register_parameter(name, router)

    def _take_bias(self, layer: torch.nn.Module) -> None:
        """vLLM makes the bias after this, with the loader that it finds in the layer."""
        if not hasattr(layer, "has_bias"):
            return  # a head
        f32 = any(piece.layout.kernel.f32_bias for piece in self.pieces)
        for piece in self.pieces:
            held = piece.layout.kernel.weight_holds_bias and piece.geometry.bias
            if held and getattr(layer, "skip_bias_add", False):
                raise Unsupported(
                    piece.modules[0].name,
                    "the model adds the bias of this layer itself, and the op of "
                    f"{piece.layout.id} does so, too",
                    hint="Pack the layer again with --scheme 'MODULE=bf16'",
                )
        if getattr(layer, "skip_bias_add", False):
            f32 = False  # who adds it does so in the dtype of the activations
        self.bias_loader = BiasLoader(f32, layer.weight_loader)
        layer.weight_loader = self.bias_loader

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """There is nothing to process: has all of it come?"""
        self.on_loaded()
        for piece in self.pieces:
            names = [module.name for module in piece.modules]
            for loader in piece.loaders:
                _check_loaded(loader, loader.loaded, names)
            piece.start()
        if self.bias_loader is not None and layer.bias is not None:
            names = [module.name for module in self.modules]
            _check_loaded(self.bias_loader, self.bias_loader.loaded, names)
        # kv_b_proj of a latent attention, by vLLM's mark of it. The attention multiplies it with
        # the identity; the codes of FP8 checkpoints it scales itself.
        quantizer = self.manifest.source_quantization.get("quant_method")
        self.attention_reads = quantizer == "fp8" and getattr(layer, _READ_BY_ATTENTION, False)

    def mapped_tensors(self) -> Iterator[str]:
        for piece in self.pieces:
            yield from piece.mapped_tensors()

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if self.attention_reads:
            self.attention_reads = False
            weights = self._exact_weights(rows)
            if weights is not None:
                return weights
        if len(self.pieces) == 1:
            y = self.pieces[0].multiply(rows, bias)
        else:
            y = self._multiply_one_by_one(rows, bias)
        if self.output_order is not None:
            y = y.index_select(1, self.output_order)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def _exact_weights(self, x: torch.Tensor) -> torch.Tensor | None:
        """[K, N], if x is the identity."""
        kernel = self.pieces[0].kernel
        exact = kernel.exact_weights() if kernel is not None and len(self.pieces) == 1 else None
        identity = torch.eye(x.shape[1], dtype=x.dtype)
        return exact.t().to(x.dtype) if exact is not None and torch.equal(x, identity) else None

    def _multiply_one_by_one(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        begin = 0
        outputs = []
        for piece in self.pieces:
            end = begin + piece.geometry.n
            outputs.append(piece.multiply(x, None if bias is None else bias[begin:end]))
            begin = end
        return torch.cat(outputs, 1)


class _ShardOfItsOwn:
    """Loads a rank's share of a module that has parameters of its own in a fused layer."""

    def __init__(self, layer: torch.nn.Module, index: int, size: int):
        self.layer = layer
        self.index = index
        self.size = size

    def __call__(self, parameter: BasevLLMParameter, stored: torch.Tensor) -> None:
        parameter.tp_rank = self.layer.tp_rank
        # Ranks that share a head of k and v load the same channels. (vLLM's name for them is
        # num_heads.) Layers without heads are cut as q is.
        parameter.load_qkv_weight(
            stored,
            shard_id="k" if self.index > 0 else "q",
            num_heads=getattr(self.layer, "num_kv_head_replicas", 1),
            shard_offset=0,
            shard_size=self.size,
        )


class _Router:
    """Stands in a fused layer for a part of which each module has its own parameter."""

    def __init__(self, part: str, pieces: list[Piece]):
        self.part = part
        self.pieces = pieces

    def __call__(self, _: torch.nn.Parameter, stored: torch.Tensor, shard: ShardId) -> None:
        assert isinstance(shard, str | int)
        piece = self.pieces[index_of(shard)]
        getattr(piece.holder, self.part).weight_loader(getattr(piece.holder, self.part), stored)


def check_dtype(manifest: Manifest, module: PackedModule, dtype: torch.dtype) -> None:
    expected = TORCH_DTYPES.get(manifest.activation_dtype)
    if dtype != expected:
        raise Unsupported(
            module.name,
            "the folder was packed for activations of another dtype",
            found=dtype,
            expected=expected,
            hint=f"Give vLLM --dtype {str(expected).removeprefix('torch.')}, or pack again "
            "with --dtype",
        )


def _check_loaded(loader: PartLoader | BiasLoader, loaded: set[ShardId], names: list[str]) -> None:
    """vLLM itself does not notice what a quantized model lacks, and computes with what is there."""
    missing = missing_modules(loaded, names)
    if missing:
        raise Malformed(
            missing[0],
            f"part {loader.name} was not loaded",
            hint="Copy the folder again, or pack the checkpoint again",
        )
