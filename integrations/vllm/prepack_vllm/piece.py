"""Modules that are multiplied by one call of one kernel, and their parameters."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from prepack_vllm.errors import Unsupported
from prepack_vllm.geometry import Geometry, kind_of
from prepack_vllm.kernels import Kernel
from prepack_vllm.layouts import Layout, layout_of, module_parts
from prepack_vllm.loading import (
    PartLoader,
    make_parameter,
    why_not_inputs,
    why_not_pieces,
)
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.parts import Part


@dataclass
class Piece:
    modules: list[PackedModule]
    layout: Layout
    geometry: Geometry  # of what this rank holds
    holder: torch.nn.Module  # has the parameters
    loaders: list[PartLoader] = field(default_factory=list)
    kernel: Kernel | None = None
    order: torch.Tensor | None = None

    def start(self) -> None:
        """Makes the kernel, once all parts have come."""
        parts = {loader.name: getattr(self.holder, loader.name).data for loader in self.loaders}
        self.kernel = self.layout.kernel(self.geometry, parts)
        self.order = parts.get("input_order")
        if self.kernel.holds_weights_itself():
            self.holder.weight.data = torch.empty(0, dtype=self.holder.weight.dtype)
            self.kernel.parts = {name: one for name, one in parts.items() if name != "weight"}

    def mapped_tensors(self) -> Iterator[str]:
        """Of the folder: those that are parameters as they are, not copied."""
        if len(self.modules) > 1:
            return
        for loader in self.loaders:
            stored = self.modules[0].parts[loader.name]
            if loader.may_keep and loader.part.shape_in_file == stored.shape:
                yield stored.name

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        assert self.kernel is not None
        if self.order is not None:
            x = x.index_select(1, self.order)
        if bias is not None:
            bias = bias.to(torch.float32 if self.kernel.f32_bias else x.dtype)
        return self.kernel(x.contiguous(), bias)


def make_piece(
    manifest: Manifest,
    modules: list[PackedModule],
    sizes: list[int],
    k: int,
    holder: torch.nn.Module,
    load: Callable[..., None],
) -> Piece:
    """For a rank with `sizes` output channels of the modules and `k` input channels of each."""
    first = modules[0]
    layout = layout_of(first)
    whole, whole_parts = module_parts(first, manifest)
    geometry = whole.piece(sum(sizes), k)
    why_not = why_not_inputs(whole_parts, k) if k != first.k else None
    if len(sizes) > 1 or sizes[0] != first.n:
        why_not = why_not or why_not_pieces(whole_parts, sizes)
    if why_not is not None:
        raise Unsupported(
            first.name,
            f"with this tensor parallelism a rank would hold {why_not} ({first.layout})",
            hint="Use less tensor parallelism",
        )
    piece = Piece(modules, layout, geometry, holder)
    for part, whole_part in zip(layout.parts_of(geometry), whole_parts, strict=True):
        # Where a rank holds one group of several, the stored part is still to be cut.
        part = dataclasses.replace(part, by_inputs=whole_part.by_inputs)
        loader = PartLoader(first.name, part, load)
        piece.loaders.append(loader)
        holder.register_parameter(part.name, make_parameter(part, loader))
    return piece


def can_be_one(modules: list[PackedModule], manifest: Manifest, sizes: list[int]) -> bool:
    """Can one kernel multiply all of them, side by side?"""
    first, first_parts = module_parts(modules[0], manifest)
    for module in modules[1:]:
        geometry, parts = module_parts(module, manifest)
        alike = module.layout == modules[0].layout and kind_of(geometry) == kind_of(first)
        if not alike or not _share_whole_parts(modules[0], module, first_parts):
            return False
    return why_not_pieces(first_parts, sizes) is None


def _share_whole_parts(a: PackedModule, b: PackedModule, parts: list[Part]) -> bool:
    """Parts that are not cut along output channels, such as the input order, are one."""
    whole = [part.name for part in parts if part.by_outputs is None]
    return all(a.parts[name].xxh3_128 == b.parts[name].xxh3_128 for name in whole)
