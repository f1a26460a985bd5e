"""Which modules of a folder make up a layer of vLLM, by the name that vLLM gives the layer."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from prepack_vllm.manifest import Manifest, PackedModule

# What vLLM fuses in models whose class does not say so (`packed_modules_mapping`).
FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
# What vLLM puts in front of every name in a draft model (`--speculative-config`).
_DRAFT = "draft_model."
_DECODER_LAYER = re.compile(r"(.*\blayers\.\d+)\.(.+)")
_AFTER_LAYERS = re.compile(r"^(\w+)\.(\d+)\.(.+)")
_PREDICTS_MORE = re.compile(r"(^|\.)mtp[._]")


class LayerNames:
    """The names in a folder, as vLLM's class for the model has them."""

    def __init__(self, manifest: Manifest):
        self.modules: dict[str, PackedModule] = dict(manifest.modules)
        self.kept = set(manifest.kept)
        self.plain = {tensor.name.rpartition(".")[0] for tensor in manifest.tensors}

    def map(self, mapper: Any) -> None:
        """From the checkpoint's names to those of vLLM's model. Some patterns end with the dot
        behind a module."""
        modules = mapper.apply_dict({f"{name}.": one for name, one in self.modules.items()})
        self.modules = {name.removesuffix("."): module for name, module in modules.items()}
        self.kept = self._mapped(mapper, self.kept)
        self.plain = self._mapped(mapper, self.plain)
        self.__dict__.pop("_decoder_layers", None)

    @staticmethod
    def _mapped(mapper: Any, names: Iterable[str]) -> set[str]:
        found = mapper.apply_list([f"{name}." for name in names])
        return {name.removesuffix(".") for name in found}

    def _is_there(self, name: str) -> bool:
        return name in self.modules or name in self.kept or name in self.plain

    def in_the_folder(self, layer: str) -> str:
        """The name of a layer without what vLLM puts in front of all of them, and with what some
        models forget: Whisper's have nothing before the first dot."""
        match = _DECODER_LAYER.fullmatch(layer)
        if match is not None and layer.startswith("."):
            whole = [name for name in self._decoder_layers if name.endswith(match[1])]
            return f"{whole[0]}.{match[2]}" if len(whole) == 1 else layer
        known = (*self.modules, *self.kept, *self.plain)
        if not layer.startswith(_DRAFT) or any(name.startswith(_DRAFT) for name in known):
            return layer
        return layer.removeprefix(_DRAFT)

    def of_layer(self, layer: str, mapping: Mapping[str, Any]) -> list[str]:
        """Of the modules in a linear layer: one, or those that vLLM fuses."""
        parent, _, last = layer.rpartition(".")
        fused = mapping.get(last) or FUSED.get(last)
        choices = [[last], list(fused)] if fused else [[last]]
        for members in choices:
            names = [f"{parent}.{one}" if parent else one for one in members]
            if any(map(self._is_there, names)):
                return names
        for members in choices:
            other = self.other_parent(layer, members)
            if other is not None:
                return [f"{other}.{one}" for one in members]
        return [layer]

    def of_experts(self, layer: str, projection: str) -> str:
        """The name in the folder of a layer of experts."""
        match = _DECODER_LAYER.fullmatch(layer)
        rests = self._decoder_layers.get(match[1], []) if match is not None else []
        if match is None or any(rest.startswith(f"{match[2]}.") for rest in rests):
            return layer
        first = f"{layer}.0"
        other = self.other_parent(f"{first}.{projection}", [projection]) or ""
        alike = _common_end(other, first) >= 2  # other layers have projections, too
        return other.removesuffix(".0") if alike else layer

    def other_parent(self, layer: str, members: list[str]) -> str | None:
        """Where the members of a layer are that are not under its name.

        Some models of vLLM have a block in another place than they tell its layers: Mamba's `mixer`
        is at `mamba`, and `mtp_block` at no place of the checkpoint. It is where the same decoder
        layer has members of these names; of several such places, the one whose name ends most
        alike.
        """
        match = _DECODER_LAYER.fullmatch(self._in_its_decoder_layer(layer))
        if match is None:
            return None
        rests = self._decoder_layers.get(match[1], [])
        parents = set.intersection(
            *({rest.removesuffix(f".{one}") for rest in rests if rest.endswith(f".{one}")}
              for one in members)
        )  # fmt: skip
        wanted = match[2].rpartition(".")[0]
        ranked = sorted(parents, key=lambda parent: _common_end(parent, wanted), reverse=True)
        alike = [_common_end(parent, wanted) for parent in ranked[:2]]
        if not ranked or (len(ranked) > 1 and alike[0] == alike[1]):
            return None
        return f"{match[1]}.{ranked[0]}"

    def _in_its_decoder_layer(self, layer: str) -> str:
        """Falcon-H1 counts its Mamba blocks on behind its decoder layers, as in model.32.mixer."""
        match = _AFTER_LAYERS.fullmatch(layer)
        if match is None:
            return layer
        all_layers = f"{match[1]}.layers."
        count = sum(name.startswith(all_layers) for name in self._decoder_layers)
        return f"{all_layers}{int(match[2]) % count}.{match[3]}" if count else layer

    @cached_property
    def _decoder_layers(self) -> dict[str, list[str]]:
        """What each has, by its name."""
        found: dict[str, list[str]] = {}
        for name in self.modules.keys() | self.kept | self.plain:
            match = _DECODER_LAYER.fullmatch(name)
            if match is not None:
                found.setdefault(match[1], []).append(match[2])
        return found


def _common_end(a: str, b: str) -> int:
    """How many components at the end are equal."""
    count = 0
    for one, other in zip(reversed(a.split(".")), reversed(b.split(".")), strict=False):
        if one != other:
            break
        count += 1
    return count


class PredictionLayers:
    """Layers that predict further tokens (MTP). vLLM uses them for speculative decoding only, and
    then as a model of their own, which has none of the other layers."""

    def __init__(self, hf_config: Any):
        text = getattr(hf_config, "text_config", hf_config)
        self.decoder_layers = getattr(text, "num_hidden_layers", None)
        architectures = getattr(hf_config, "architectures", None) or [""]
        self.are_the_model = "MTP" in architectures[0]

    def have(self, module: str) -> bool:
        match = re.search(r"\blayers\.(\d+)\.", module)
        if match is not None and self.decoder_layers is not None:
            if int(match[1]) >= self.decoder_layers:
                return True
        return _PREDICTS_MORE.search(module) is not None
