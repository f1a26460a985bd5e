"""What the kernels of all layouts are: given the parts of a module, they call the consumer's op."""

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
