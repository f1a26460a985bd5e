"""Recorded activations: which modules they are of, and a few rows of x of each, drawn at random.

Nothing here needs torch: rows may be tensors or arrays.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.headers import read_header
from prepack_vllm.strict_json import parse

# A module that has a tensor of one of these names is quantized, whatever the format.
_QUANTIZED_PARTS = ("qweight", "weight_packed", "weight_scale", "weight_scale_inv")
_EXPERT = re.compile(r"\bexperts\.")


def is_expert(module: str) -> bool:
    return _EXPERT.search(module) is not None


@dataclass(frozen=True)
class Modules:
    """Of a folder, by name; fused ones under the names of their members."""

    quantized: frozenset[str]
    others: frozenset[str]


def modules_of(folder: Path) -> Modules:
    """Of a packed folder, those that are packed are the quantized ones."""
    names = {name.rpartition(".")[::2] for name in _tensors_of(folder)}
    if (folder / "prepack.json").is_file():
        packed = _packed_modules(folder / "prepack.json")
    else:
        packed = {module: [module] for module, part in names if part in _QUANTIZED_PARTS}
    quantized = frozenset(member for members in packed.values() for member in members)
    if not quantized:
        raise Unsupported(
            str(folder),
            "it has no quantized module",
            hint="--for names the quantized checkpoint, or the packed folder, that it belongs to",
        )
    return Modules(quantized, frozenset(module for module, _ in names) - packed.keys() - quantized)


def _tensors_of(folder: Path) -> Iterator[str]:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise Malformed(str(folder), "there are no safetensors files in the folder")
    for path in paths:
        yield from read_header(path)[1]


def _packed_modules(manifest: Path) -> dict[str, list[str]]:
    """To their members; of one that is not fused, itself."""
    try:
        return {
            name: [member["module"] for member in module.get("fused", [])] or [name]
            for name, module in parse(manifest.read_bytes())["modules"].items()
        }
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(str(manifest), f"this is no manifest: {error}") from error


class _Reservoir:
    """Every row that was offered is in it with the same probability: each draws a number, and those
    with the least stay."""

    def __init__(self, size: int, seed: int):
        self._size = size
        self._random = np.random.default_rng(seed)
        self._kept: list[tuple[float, int, Any]] = []  # number drawn, place among all, row
        self._seen = 0
        self.not_finite = 0

    def offer(self, x: Any) -> None:
        drawn = self._random.random(len(x))
        for place in np.argsort(drawn, kind="stable"):
            if len(self._kept) == self._size and drawn[place] >= self._kept[-1][0]:
                break
            row = x[int(place)]
            if not math.isfinite(float(abs(row).max())):
                self.not_finite += 1
                continue
            self._keep(float(drawn[place]), self._seen + int(place), row)
        self._seen += len(x)

    def _keep(self, drawn: float, place: int, row: Any) -> None:
        copy = row.clone() if hasattr(row, "clone") else row.copy()
        self._kept.append((drawn, place, copy))
        self._kept.sort(key=lambda one: one[:2])
        del self._kept[self._size :]

    def rows(self) -> list[Any]:
        """In the order in which they came."""
        return [row for _, _, row in sorted(self._kept, key=lambda one: one[1])]


class Recording:
    """Rows of x by module."""

    def __init__(self, modules: Modules, rows: int, expert_rows: int, seed: int):
        self.wanted = modules.quantized
        self.others = modules.others
        self._rows = rows
        self._expert_rows = expert_rows
        self._seed = seed
        self._reservoirs: dict[tuple[str, ...], _Reservoir] = {}

    def offer(self, modules: Sequence[str], x: Any) -> None:
        """`modules` are those that read x, which is [..., K]."""
        x = x.reshape(-1, x.shape[-1])
        if len(x):
            self._of(tuple(modules)).offer(x)

    def hook(self, modules: Sequence[str]) -> Callable[..., None]:
        """A forward pre-hook of torch, with named arguments: x is the first argument."""

        def offer(_layer: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
            self.offer(modules, arguments[0] if arguments else next(iter(named.values())))

        return offer

    def _of(self, modules: tuple[str, ...]) -> _Reservoir:
        if modules not in self._reservoirs:
            size = self._expert_rows if is_expert(modules[0]) else self._rows
            # The same for all: of layers that every token runs through, the same tokens stay.
            self._reservoirs[modules] = _Reservoir(size, self._seed)
        return self._reservoirs[modules]

    def by_module(self) -> dict[str, list[Any]]:
        found = {
            module: rows
            for modules, reservoir in self._reservoirs.items()
            if (rows := reservoir.rows())
            for module in modules
            if module in self.wanted
        }
        return dict(sorted(found.items()))

    def missing(self) -> list[str]:
        """Modules without a row."""
        return sorted(self.wanted - self.by_module().keys())

    @property
    def not_finite(self) -> int:
        return sum(one.not_finite for one in self._reservoirs.values())


class ExpertNames:
    """The modules of experts by decoder layer, because runtimes keep them elsewhere than checkpoints
    do."""

    _ONE_BY_ONE = re.compile(r"(.*\blayers\.\d+\.|)(.*\bexperts)\.(\d+)\.(\w+)")
    _STACKED = re.compile(r"(.*\blayers\.\d+\.|)(.*\bexperts)\.(\w+)\.(\d+)")
    _PROJECTIONS = {
        "gate_up": ("gate_proj", "up_proj", "w1", "w3", "gate_up_proj"),
        "down": ("down_proj", "w2"),
    }

    def __init__(self, modules: Iterable[str]):
        # Layer → place in it → (projection, expert) → module.
        self._layers: dict[str, dict[str, dict[tuple[str, int], str]]] = {}
        for name in modules:
            if one := self._ONE_BY_ONE.fullmatch(name):
                layer, place, expert, projection = one.groups()
            elif one := self._STACKED.fullmatch(name):
                layer, place, projection, expert = one.groups()
            else:
                continue
            mixture = self._layers.setdefault(layer, {}).setdefault(place, {})
            mixture[projection, int(expert)] = name

    def of(self, mixture: str, what: str, expert: int) -> list[str]:
        """`what`: "gate_up" or "down", which read the same x. `mixture`: where the runtime has it; if
        that is no place of the checkpoint, it is the only one in its layer."""
        match = re.match(r".*\blayers\.\d+\.", mixture)
        layer = match[0] if match else ""
        places = self._layers.get(layer, {})
        names = places.get(mixture[len(layer) :])
        if names is None and len(places) == 1:
            names = next(iter(places.values()))
        wanted = ((projection, expert) for projection in self._PROJECTIONS[what])
        return [names[one] for one in wanted if one in names] if names else []
