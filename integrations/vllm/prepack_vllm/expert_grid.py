"""The packed modules of a layer of experts, by projection and expert."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.geometry import Geometry, geometry_of, kind_of
from prepack_vllm.manifest import Manifest, PackedModule

GATE, UP, DOWN = "w1", "w3", "w2"  # vLLM's names
SHARDS = (GATE, UP, DOWN)


def expert_names(layer: str, projections: Mapping[str, str], experts: int) -> dict[str, list[str]]:
    """Of the modules in a layer. `projections`: gate, up and down in the names of the model."""
    return {
        shard: [f"{layer}.{expert}.{projections[shard]}" for expert in range(experts)]
        for shard in SHARDS
    }


@dataclass(frozen=True)
class ExpertGrid:
    """`modules[shard][e]`: one of gate, up and down of expert e."""

    modules: dict[str, list[PackedModule]]

    @property
    def first(self) -> PackedModule:
        return self.modules[GATE][0]

    @property
    def layout(self) -> str:
        return self.first.layout

    def __iter__(self) -> Iterator[PackedModule]:
        for shard in SHARDS:
            yield from self.modules[shard]

    def check(self, manifest: Manifest, inner: int, hidden: int) -> None:
        """One call of an op runs all experts of the layer: one must be packed as the other is."""
        self._check_shapes(inner, hidden)
        for module in self:
            _check_plain(module)
            _check_equal(module, self.first, module.layout, self.layout)
        for shards in ((GATE, UP), (DOWN,)):
            first = self.modules[shards[0]][0]
            expected = geometry_of(first, manifest.activation_dtype)
            for shard in shards:
                for module in self.modules[shard]:
                    found = geometry_of(module, manifest.activation_dtype)
                    if kind_of(found) != kind_of(expected):
                        _check_equal(module, first, _describe(found), _describe(expected))

    def _check_shapes(self, inner: int, hidden: int) -> None:
        for shard in SHARDS:
            n, k = (hidden, inner) if shard == DOWN else (inner, hidden)
            for module in self.modules[shard]:
                if (module.n, module.k) != (n, k):
                    raise Malformed(
                        module.name,
                        "the model's experts have another shape than the packed weights",
                        found=f"N = {module.n}, K = {module.k}",
                        expected=f"N = {n}, K = {k}",
                        hint="config.json and the weights do not belong together",
                    )


_EXPERT = re.compile(r"(.*\bexperts)\.([0-9]{1,9})\.(\w+)")


def check_every_expert(manifest: Manifest) -> None:
    """Of a layer of which experts are packed none is missing, packed or not."""
    layers: dict[str, tuple[int, set[str]]] = {}
    for name in manifest.modules:
        match = _EXPERT.fullmatch(name)
        if match:
            last, projections = layers.get(match[1], (0, set()))
            layers[match[1]] = max(last, int(match[2])), projections | {match[3]}
    there = manifest.modules.keys() | manifest.kept.keys()
    there |= {tensor.name.rpartition(".")[0] for tensor in manifest.tensors}
    for layer, (last, projections) in layers.items():
        for expert in range(last + 1):
            for projection in sorted(projections):
                name = f"{layer}.{expert}.{projection}"
                if name not in there:
                    raise Malformed(
                        name,
                        "the expert is missing, and others of its layer are there",
                        hint="Pack the checkpoint again",
                    )


def _check_plain(module: PackedModule) -> None:
    for part, what in {"input_order": "activation order", "bias": "a bias"}.items():
        if part in module.parts:
            raise Unsupported(
                module.name,
                f"the expert has {what}, and vLLM's ops for experts take none",
                hint="Pack another quantization of this model",
            )


def _check_equal(module: PackedModule, first: PackedModule, found: str, expected: str) -> None:
    if found != expected:
        raise Unsupported(
            module.name,
            f"the expert is packed in another way than {first.name}, and one op runs both",
            found=found,
            expected=expected,
            hint="Pack again with one --scheme for all experts of a layer",
        )


def _describe(g: Geometry) -> str:
    """What `kind_of` compares."""
    symmetric = "symmetric" if g.symmetric else "asymmetric"
    return (
        f"{symmetric}, scales per {g.granularity}, {g.group_size} x {g.scale_rows}, "
        f"activations {g.activations}"
    )
