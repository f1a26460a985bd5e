"""The sizes and numbers that decide what the parts of a packed module look like."""

import dataclasses
from dataclasses import dataclass

from prepack_vllm.manifest import Activations, PackedModule


@dataclass(frozen=True)
class Geometry:
    n: int  # output channels
    k: int  # input channels
    granularity: str  # tensor, channel, group or block
    group_size: int  # input channels per scale
    scale_rows: int  # output channels per scale
    symmetric: bool
    activations: Activations | None
    activation_dtype: str  # of x and y, as safetensors names dtypes
    bias: bool = False
    reordered: bool = False  # the consumer multiplies with x[input_order]

    @property
    def groups(self) -> int:
        return -(-self.k // self.group_size)

    @property
    def block_k(self) -> int:
        """Input channels of a block of vllm-cpu/int4-w4a8."""
        return min(self.group_size, 128)

    def piece(self, n: int, k: int) -> "Geometry":
        """Of `n` output channels by `k` input channels: a rank's share, or modules side by side."""
        group_size = k if self.group_size == self.k else self.group_size
        scale_rows = n if self.granularity == "tensor" else self.scale_rows
        return dataclasses.replace(self, n=n, k=k, group_size=group_size, scale_rows=scale_rows)


def geometry_of(module: PackedModule, activation_dtype: str) -> Geometry:
    """Of a stack of experts: that of each of them."""
    return Geometry(
        n=module.n // max(module.experts, 1),
        k=module.k,
        granularity=module.granularity,
        group_size=module.group_size,
        scale_rows=module.scale_rows,
        symmetric=module.symmetric,
        activations=module.activations,
        activation_dtype=activation_dtype,
        bias="bias" in module.parts,
        reordered="input_order" in module.parts,
    )


def kind_of(geometry: Geometry) -> Geometry:
    """What must be equal, whatever the number of output channels, and with or without a bias."""
    return dataclasses.replace(geometry.piece(1, geometry.k), bias=False)
