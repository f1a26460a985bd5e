"""What a row of the table of layouts says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from prepack_vllm.closed_forms import Weights
from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import Kernel, has_op
from prepack_vllm.manifest import Activations
from prepack_vllm.parts import Part

PackedParts = Mapping[str, torch.Tensor]
DYNAMIC = Activations("int", symmetric=True, dynamic=True)


@dataclass(frozen=True)
class Scheme:
    """Of a probe module of packing fingerprints (probes.py)."""

    code: str  # u4, s8, f8e4m3, f4e2m1 or bf16
    granularity: str
    symmetric: bool = True
    activations: Activations | None = None
    f16: bool = False  # activations in F16 as well, though the kernel does not take them


INT8_SCHEMES = tuple(Scheme("s8", scales, activations=DYNAMIC) for scales in ("channel", "tensor"))


@dataclass(frozen=True)
class Probe:
    """A module. Codes are [N, K]: u4 and f4e2m1 as 0 … 15, s8, f8e4m3 and bf16 as bits."""

    geometry: Geometry
    code: str
    codes: npt.NDArray[np.generic]
    scales: npt.NDArray[np.float32]  # [N, G]
    zero_points: npt.NDArray[np.uint8]  # [N, G]


@dataclass(frozen=True)
class Packer:
    """What a runtime would make of a checkpoint at load is what its kernel reads. A packer is
    called only where it runs: vLLM's for 4 bits with 16-bit activations is Python and runs on every
    CPU; the others are ops of its library for AVX-512 with BF16, or of zentorch."""

    pack: Callable[[Probe], PackedParts]
    op: str | None = None  # that it needs
    on_arm: bool = False  # on other CPUs the op of this name packs something else

    def runs(self) -> bool:
        if self.on_arm and not torch.backends.kleidiai.is_available():
            return False
        return self.op is None or has_op(self.op)


@dataclass(frozen=True)
class Layout:
    id: str
    version: int
    fingerprint: str  # of that version, see docs/layouts/
    parts_of: Callable[[Geometry], list[Part]]  # the same as in docs/layouts/
    kernel: type[Kernel]
    weights: Callable[[Mapping[str, torch.Tensor], Geometry], Weights]  # [N, K], of packed parts
    schemes: tuple[Scheme, ...]  # that fingerprints are made of, in order
    activation_dtypes: tuple[str, ...] = ("BF16",)
    packer: Packer | None = None  # the consumer's; None: nothing is packed, or it cannot be called
