"""The packed modules of a layer of experts, by projection and expert."""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.geometry import Geometry, geometry_of, kind_of
from prepack_vllm.manifest import Manifest, PackedModule

GATE, UP, DOWN = "w1", "w3", "w2"  # vLLM's names
GATE_UP = "w13"  # gate and up in one module, with alternating rows
# The modules that make up w13 and w2, as the ops read them.
APART = ((GATE, UP), (DOWN,))
TOGETHER = ((GATE_UP,), (DOWN,))


def expert_names(layer: str, projections: Mapping[str, str], experts: int) -> dict[str, list[str]]:
    """Of the modules in a layer. `projections`: gate, up and down in the names of the model."""
    return {
        shard: [f"{layer}.{expert}.{projections[shard]}" for expert in range(experts)]
        for shard in (GATE, UP, DOWN)
    }


def names_of_stacked_experts(layer: str, experts: int) -> dict[str, list[str]]:
    """As prepack names those of a checkpoint that stores all experts in one tensor."""
    projections = {GATE_UP: "gate_up_proj", DOWN: "down_proj"}
    return {
        shard: [f"{layer}.{projection}.{expert}" for expert in range(experts)]
        for shard, projection in projections.items()
    }


Stacks = tuple[PackedModule, PackedModule]  # w13 and w2


@dataclass(frozen=True)
class ExpertGrid:
    """`modules[shard][e]`: gate, up or down of expert e, or gate and up together."""

    modules: dict[str, list[PackedModule]]
    # What the folder stores instead of them (expert_stacks.py). One expert then stands for all.
    stored: Stacks | None = None

    @property
    def together(self) -> bool:
        return GATE_UP in self.modules

    @property
    def stacks(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return TOGETHER if self.together else APART

    @property
    def first(self) -> PackedModule:
        return self.modules[self.stacks[0][0]][0]

    @property
    def biases(self) -> bool:
        return "bias" in self.first.parts

    @property
    def layout(self) -> str:
        return self.first.layout

    def __iter__(self) -> Iterator[PackedModule]:
        for modules in self.modules.values():
            yield from modules

    def check(self, manifest: Manifest, inner: int, hidden: int) -> None:
        """One call of an op runs all experts of the layer: one must be packed as the other is."""
        self._check_shapes(inner, hidden)
        for module in self:
            _check_order(module)
            _check_equal(module, self.first, module.layout, self.layout)
            _check_equal(module, self.first, _describe_bias(module), _describe_bias(self.first))
        for shards in self.stacks:
            first = self.modules[shards[0]][0]
            expected = geometry_of(first, manifest.activation_dtype)
            for shard in shards:
                for module in self.modules[shard]:
                    found = geometry_of(module, manifest.activation_dtype)
                    if kind_of(found) != kind_of(expected):
                        _check_equal(module, first, _describe(found), _describe(expected))

    def check_count(self, experts: int) -> None:
        for stack in self.stored or ():
            if stack.experts != experts:
                raise Malformed(
                    stack.name,
                    "the model has another number of experts than the folder",
                    found=stack.experts,
                    expected=experts,
                    hint="config.json and the weights do not belong together",
                )

    def _check_shapes(self, inner: int, hidden: int) -> None:
        shapes = {GATE_UP: (2 * inner, hidden), DOWN: (hidden, inner)}
        for shard, modules in self.modules.items():
            n, k = shapes.get(shard, (inner, hidden))
            for module in modules:
                if (module.n, module.k) != (n, k):
                    raise Malformed(
                        module.name,
                        "the model's experts have another shape than the packed weights",
                        found=f"N = {module.n}, K = {module.k}",
                        expected=f"N = {n}, K = {k}",
                        hint="config.json and the weights do not belong together",
                    )


# Of experts that a checkpoint stores one by one, and of those that it stores in one tensor.
_EXPERT = re.compile(r"(?P<layer>.*\bexperts)\.(?P<expert>[0-9]{1,9})\.(?P<projection>\w+)")
_STACKED = re.compile(
    r"(?P<layer>.*\bexperts)\.(?P<projection>(?:gate_up|down)_proj)\.(?P<expert>[0-9]{1,9})"
)


def check_every_expert(manifest: Manifest) -> None:
    """Of a layer of which experts are packed none is missing, packed or not."""
    there = manifest.modules.keys() | manifest.kept.keys()
    there |= {tensor.name.rpartition(".")[0] for tensor in manifest.tensors}
    for pattern, name in (
        (_EXPERT, "{layer}.{expert}.{projection}"),
        (_STACKED, "{layer}.{projection}.{expert}"),
    ):
        layers: dict[str, tuple[int, set[str]]] = {}
        for match in filter(None, map(pattern.fullmatch, manifest.modules)):
            last, projections = layers.get(match["layer"], (0, set()))
            projections |= {match["projection"]}
            layers[match["layer"]] = max(last, int(match["expert"])), projections
        for layer, (last, projections) in layers.items():
            for expert in range(last + 1):
                for projection in sorted(projections):
                    _check_there(
                        name.format(layer=layer, expert=expert, projection=projection), there
                    )


def _check_there(name: str, there: Set[str]) -> None:
    if name not in there:
        raise Malformed(
            name,
            "the expert is missing, and others of its layer are there",
            hint="Pack the checkpoint again",
        )


def _check_order(module: PackedModule) -> None:
    if "input_order" in module.parts:
        raise Unsupported(
            module.name,
            "the expert has activation order, and vLLM's ops for experts take none",
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


def _describe_bias(module: PackedModule) -> str:
    return "a bias" if "bias" in module.parts else "no bias"


def _describe(g: Geometry) -> str:
    """What `kind_of` compares."""
    symmetric = "symmetric" if g.symmetric else "asymmetric"
    return (
        f"{symmetric}, scales per {g.granularity}, {g.group_size} x {g.scale_rows}, "
        f"activations {g.activations}"
    )
