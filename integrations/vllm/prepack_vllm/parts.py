"""The parts of each layout: names, dtypes, shapes, and where they can be cut.

The same as in docs/layouts/. A part is cut along one axis of its array where the module is cut
along its output channels (q, k and v side by side; tensor parallelism), and along one where it is
cut along its input channels.
"""

import dataclasses
import math
from collections.abc import Callable
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


def _by_group(g: Geometry, axis: int) -> Division:
    """Of scales and zero points: one for each group, or one for all input channels."""
    return WHOLE if g.groups == 1 else Along(axis, g.group_size, g.group_size)


def _input_order(g: Geometry) -> list[Part]:
    return [Part("input_order", "I32", (g.k,), WHOLE, NEVER)] if g.reordered else []


def _channel_scale(g: Geometry, dtype: str) -> Part:
    return Part("weight_scale", dtype, (g.n,), Along(0), WHOLE)


def _grouped_scale(g: Geometry, dtype: str) -> Part:
    return Part("weight_scale", dtype, (g.groups, g.n), Along(1), _by_group(g, 0))


def wna16(g: Geometry) -> list[Part]:
    weight = Part("weight", "I32", (g.n // 16, 2 * g.k), Along(0, 16, 32), Along(1, 1, 32))
    parts = [weight, _grouped_scale(g, g.activation_dtype)]
    if not g.symmetric:
        shape = (g.groups, g.n // 8)
        parts.append(Part("weight_zero_point", "I32", shape, Along(1, 8, 8), _by_group(g, 0)))
    return parts + _input_order(g)


def int4_w4a8(g: Geometry) -> list[Part]:
    b = g.block_k
    by_outputs = Along(0, 32, 32)
    scales = (g.n // 32, g.groups, 32)
    return [
        Part(
            "weight", "U8", (g.n // 32, g.k // b, 16 * b + 128), by_outputs,
            Along(1, b, math.lcm(b, 32)),
        ),
        Part("weight_scale", "F32", scales, by_outputs, _by_group(g, 1)),
        Part("weight_zero_point", "I8", scales, by_outputs, _by_group(g, 1)),
        *_input_order(g),
    ]  # fmt: skip


def arm_int4_w4a8(g: Geometry) -> list[Part]:
    """The weight holds scales and bias, too, for every 8 output channels."""
    if g.groups == 1:
        record = -(-g.k // 32) * 128 + 96
    else:
        record = g.groups * (4 * g.group_size + 16) + 64
    weight = Part("weight", "U8", (-(-g.n // 8), record), Along(0, 8, 8), NEVER)
    return [weight, *_input_order(g)]


def int8_vnni(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k + 4), Along(0, 1, 32), NEVER)
    return [weight, _channel_scale(g, "F32"), *_input_order(g)]


def int8_plain(g: Geometry) -> list[Part]:
    activations = g.activations
    assert activations is not None
    parts = [Part("weight", "I8", (g.n, g.k), Along(0), Along(1)), _channel_scale(g, "F32")]
    if activations.dynamic or not activations.symmetric:
        parts.append(Part("azp_adj", "F32", (g.n,), Along(0), NEVER))
    if not activations.dynamic:
        parts.append(Part("input_scale", "F32", (1,), WHOLE, WHOLE))
        if not activations.symmetric:
            parts.append(Part("input_zero_point", "I32", (1,), WHOLE, WHOLE))
    return parts + _input_order(g)


def arm_int8_plain(g: Geometry) -> list[Part]:
    """The quantizer takes 16 input channels at a time."""
    weight, *others = int8_plain(g)
    return [dataclasses.replace(weight, by_inputs=Along(1, 1, 16)), *others]


def _pairs(g: Geometry, dtype: str) -> Part:
    """Blocks of 32 output channels, in which two input channels lie side by side."""
    shape = (g.n // 32, g.k // 2, 64)
    return Part("weight", dtype, shape, Along(0, 32, 32), Along(1, 2, 32), stored_shape=(g.n, g.k))


def fp8_vnni(g: Geometry) -> list[Part]:
    weight = _pairs(g, "F8_E4M3")
    if g.granularity == "channel":
        return [weight, _channel_scale(g, "F32"), *_input_order(g)]
    columns = -(-g.k // 128)
    by_inputs = Along(1, 128, 128) if columns > 1 else WHOLE
    if g.granularity == "tensor":
        scale = Part("weight_scale_inv", "F32", (1, columns), WHOLE, by_inputs)
    else:
        rows = -(-g.n // g.scale_rows)
        by_outputs = Along(0, g.scale_rows, g.scale_rows)
        scale = Part("weight_scale_inv", "F32", (rows, columns), by_outputs, by_inputs)
    return [weight, scale, *_input_order(g)]


def mxfp4(g: Geometry) -> list[Part]:
    by_outputs = Along(0, 32, 32)
    return [
        Part(
            "weight", "U8", (g.n // 32, g.k // 2, 32), by_outputs, Along(1, 2, 32),
            stored_shape=(g.n, g.k // 2),
        ),
        Part("weight_scale", "U8", (g.n // 32, g.groups, 32), by_outputs, _by_group(g, 1)),
        *_input_order(g),
    ]  # fmt: skip


def _runs(g: Geometry, dtype: str, inputs: int) -> Part:
    """Panels of 8 output channels, in which so many input channels of each lie side by side."""
    shape = (g.n // 8, g.k // inputs, 8 * inputs)
    return Part(
        "weight", dtype, shape, Along(0, 8, 32), Along(1, inputs, 32), stored_shape=(g.n, g.k)
    )


def int8_neon(g: Geometry) -> list[Part]:
    return [_runs(g, "I8", 8), _channel_scale(g, "F32"), *_input_order(g)]


def bf16_neon(g: Geometry) -> list[Part]:
    return [_runs(g, "BF16", 4), *_input_order(g)]


def expert_bias(n: int, dtype: str) -> Part:
    return Part("bias", dtype, (n,), Along(0), WHOLE)


def bf16_vnni(g: Geometry) -> list[Part]:
    return [_pairs(g, "BF16"), *_input_order(g)]


def plain_bf16(g: Geometry) -> list[Part]:
    return [Part("weight", "BF16", (g.n, g.k), Along(0), Along(1)), *_input_order(g)]


def plain_bf16_conv1d(g: Geometry) -> list[Part]:
    return [Part("weight", "BF16", (g.k, g.n), Along(1), Along(0)), *_input_order(g)]


def zentorch_woq(g: Geometry) -> list[Part]:
    weight = Part("weight", "I32", (g.n, g.k // 8), Along(0), Along(1, 8, 8))
    parts = [weight, _grouped_scale(g, "BF16")]
    if not g.symmetric:
        zeros = Part("weight_zero_point", "I8", (g.groups, g.n), Along(1), _by_group(g, 0))
        parts.append(zeros)
    return parts + _input_order(g)


def zentorch_da8w4(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k // 2), Along(0), Along(1, 2, 8))
    return [weight, _grouped_scale(g, "BF16"), *_input_order(g)]


def zentorch_int8(g: Geometry) -> list[Part]:
    weight = Part("weight", "I8", (g.n, g.k), Along(0), Along(1))
    return [weight, _channel_scale(g, "BF16"), *_input_order(g)]


PartsOf = Callable[[Geometry], list[Part]]
