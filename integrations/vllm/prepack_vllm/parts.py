"""Parts of modules: names, dtypes, shapes, and where they can be cut; and those that layouts share.

A part is cut along one axis of its array where the module is cut along its output channels (q, k
and v side by side; tensor parallelism), and along one where it is cut along its input channels.
"""

from dataclasses import dataclass

from prepack_vllm.geometry import Geometry


@dataclass(frozen=True)
class Along:
    """Index i of `axis` holds `channels` channels; pieces are multiples of `unit` channels."""

    axis: int
    channels: int = 1
    unit: int = 1


WHOLE = None  # every piece holds all of the part


class Never:
    """A piece of the part has to be packed from the weights."""


NEVER = Never()
Division = Along | Never | None


@dataclass(frozen=True)
class Part:
    name: str
    dtype: str
    shape: tuple[int, ...]
    by_outputs: Division
    by_inputs: Division
    stored_shape: tuple[int, ...] | None = None  # None: as `shape`, in which it is cut

    @property
    def shape_in_file(self) -> tuple[int, ...]:
        return self.shape if self.stored_shape is None else self.stored_shape


def by_group(g: Geometry, axis: int) -> Division:
    """Of scales and zero points: one for each group, or one for all input channels."""
    return WHOLE if g.groups == 1 else Along(axis, g.group_size, g.group_size)


def input_order(g: Geometry) -> list[Part]:
    return [Part("input_order", "I32", (g.k,), WHOLE, NEVER)] if g.reordered else []


def channel_scale(g: Geometry, dtype: str) -> Part:
    return Part("weight_scale", dtype, (g.n,), Along(0), WHOLE)


def grouped_scale(g: Geometry, dtype: str) -> Part:
    return Part("weight_scale", dtype, (g.groups, g.n), Along(1), by_group(g, 0))


def expert_bias(n: int, dtype: str) -> Part:
    return Part("bias", dtype, (n,), Along(0), WHOLE)
