"""Experts that a folder stores stacked: those of a layer as one tensor per part, as the op reads it.

Such a tensor is mapped from the file and becomes the parameter: nothing is copied, however many
experts there are. With tensor parallelism each rank copies its share of it.
"""

import dataclasses
from collections.abc import Mapping

import torch
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.expert_grid import DOWN, GATE, GATE_UP, UP, ExpertGrid, Stacks
from prepack_vllm.layouts import TORCH_DTYPES
from prepack_vllm.loading import may_keep_tensors
from prepack_vllm.manifest import PackedModule
from prepack_vllm.parts import Along, Division, Part

_NAMES = (("gate_up_proj", "down_proj"), ("w13", "w2"))  # of w13 and w2


def find_stacks(modules: Mapping[str, PackedModule], layer: str) -> Stacks | None:
    """Those of a layer; None: its experts are stored one by one, or not packed."""
    for names in _NAMES:
        found = [modules.get(f"{layer}.{name}") for name in names]
        stacks = [one for one in found if one is not None and one.experts]
        if len(stacks) == 2:
            return stacks[0], stacks[1]
        if stacks:
            raise Unsupported(
                stacks[0].name,
                "the experts are stacked, and the others of the same layer are not",
                expected=" and ".join(f"{layer}.{name}" for name in names),
                hint="Pack the checkpoint again",
            )
    return None


def grid_of(stacks: Stacks, alternate: bool) -> ExpertGrid:
    """The modules of the first expert in the stacks: those of the others are like them. `alternate`:
    where a checkpoint stores gate and up in one tensor, its rows are taken by turns, else one half
    after the other."""
    w13, w2 = stacks
    if len(w13.fused) == 2 * w13.experts:
        modules = {GATE: [_slice(w13, 0, 2)], UP: [_slice(w13, 1, 2)]}
    elif alternate:
        modules = {GATE_UP: [_slice(w13, 0, 1)]}
    else:
        half = _slice(w13, 0, 2)
        modules = {GATE: [half], UP: [half]}
    return ExpertGrid(modules | {DOWN: [_slice(w2, 0, 1)]}, stacks)


def _slice(stack: PackedModule, index: int, pieces: int) -> PackedModule:
    """One of so many pieces of an expert."""
    n = stack.n // stack.experts // pieces
    return dataclasses.replace(stack, name=stack.fused[index], n=n, fused=(), experts=0)


class StackLoader:
    """Loads one part of all experts of a layer at once."""

    def __init__(
        self,
        stack: PackedModule,
        part: Part,
        whole: Part,
        moe: FusedMoEConfig,
        parameter: torch.nn.Parameter,
        pieces: int,
    ):
        """`part` is what this rank holds of an expert, `whole` what the folder does: that many
        `pieces` (gate and up), of each of which a rank has a share. No pieces: it is down, which is
        shared along its inputs."""
        self.stack = stack
        self.part = part
        self.whole = whole
        self.parameter = parameter
        self.pieces = pieces
        self.ranks = moe.tp_size
        self.rank = moe.tp_rank
        self.loaded = False

    def __call__(self, stored: torch.Tensor) -> None:
        self._check(stored)
        stored = stored.view(self.stack.experts, *self.whole.shape)
        if self.ranks > 1:
            self.parameter.data.copy_(self._share(stored))
        elif may_keep_tensors():
            self.parameter.data = stored
        else:
            self.parameter.data.copy_(stored)
        self.loaded = True

    def _check(self, stored: torch.Tensor) -> None:
        expected = TORCH_DTYPES[self.whole.dtype], (self.stack.experts, *self.whole.shape_in_file)
        if (stored.dtype, tuple(stored.shape)) != expected:
            raise Malformed(
                self.stack.name,
                f"part {self.part.name} is of another dtype or shape",
                found=f"{stored.dtype} {list(stored.shape)}",
                expected=f"{expected[0]} {list(expected[1])}",
            )

    def _share(self, stored: torch.Tensor) -> torch.Tensor:
        """What this rank holds of every expert."""
        if self.pieces == 0:
            if self.part.name == "bias" and self.rank > 0:
                return torch.zeros_like(stored)  # vLLM adds up what the ranks return
            return self._narrow(stored, self.whole.by_inputs)
        assert isinstance(self.whole.by_outputs, Along)
        axis = self.whole.by_outputs.axis + 1
        pieces = stored.chunk(self.pieces, axis)
        return torch.cat([self._narrow(piece, self.whole.by_outputs) for piece in pieces], axis)

    def _narrow(self, stored: torch.Tensor, division: Division) -> torch.Tensor:
        if not isinstance(division, Along):
            return stored
        axis = division.axis + 1  # behind the experts
        size = stored.shape[axis] // self.ranks
        return stored.narrow(axis, self.rank * size, size)

    def check_loaded(self, _: tuple[str, ...]) -> None:
        """vLLM itself does not notice what is missing, and computes with what is there."""
        if not self.loaded:
            raise Malformed(
                self.stack.name,
                f"part {self.part.name} was not loaded",
                hint="Copy the folder again, or pack the checkpoint again",
            )
