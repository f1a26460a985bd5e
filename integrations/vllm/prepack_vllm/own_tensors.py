"""The tensors that the plug-in loads itself.

A model of vLLM finds the layer of a tensor by replacing strings in its name. It knows the names in
checkpoints of its family, not those of modules that prepack stores in another cut: some models
replace the `up_proj` in `gate_up_proj`. Such tensors never reach the model: they are taken out of
the stream that vLLM's loader reads, and given to the layer that claimed them.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import get_current_vllm_config_or_none

from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.integrity import manifest_of
from prepack_vllm.manifest import Manifest, PackedModule

Load = Callable[[torch.Tensor], None]
Stream = Iterable[tuple[str, torch.Tensor]]

_CLAIMS = "prepack_claims"  # the attribute of a layer
# These read files of another kind, or none, and pass no tensors to a model by their names.
_OTHER_FILES = (
    "dummy", "ipc_cache", "mistral", "npcache", "pt", "runai_streamer_sharded", "sharded_state",
    "tensorizer",
)  # fmt: skip


@dataclass(frozen=True)
class _Claims:
    """Of one layer."""

    manifest: Manifest
    loads: dict[str, Load] = field(default_factory=dict)


def claim(layer: torch.nn.Module, manifest: Manifest, loads: Mapping[str, Load]) -> None:
    """`layer` takes these tensors of modules that are no model's (`Manifest.is_own`), by their
    names in the folder. The method of the layer checks afterwards that they have come."""
    strangers = loads.keys() - manifest.own_names
    assert not strangers, f"the model would see {strangers}, too"
    claims = layer.__dict__.setdefault(_CLAIMS, _Claims(manifest))
    claims.loads.update(loads)


def claim_parameters(
    layer: torch.nn.Module, manifest: Manifest, module: PackedModule, *shard: str
) -> None:
    """As `claim`, where each part of the module is the parameter of that name, or a shard of it."""
    loads = {
        entry.name: functools.partial(_load_parameter, layer, part, shard)
        for part, entry in module.parts.items()
    }
    claim(layer, manifest, loads)


def _load_parameter(
    layer: torch.nn.Module, name: str, shard: tuple[str, ...], stored: torch.Tensor
) -> None:
    parameter = getattr(layer, name, None)
    if parameter is None:  # a bias: other parts have theirs from the plug-in
        raise Malformed(
            getattr(layer, "prefix", type(layer).__name__),
            f"the folder has a {name}, and the model's layer has none",
            hint="config.json and the weights do not belong together",
        )
    parameter.weight_loader(parameter, stored, *shard)


def claims_something(layer: torch.nn.Module) -> bool:
    return _CLAIMS in layer.__dict__


def check_load_format(manifest: Manifest) -> None:
    config = get_current_vllm_config_or_none()
    if config is not None and config.load_config.load_format in _OTHER_FILES:
        raise Unsupported(
            str(manifest.folder),
            "packed folders are loaded from their safetensors files, tensor by tensor",
            found=f"--load-format {config.load_config.load_format}",
            hint="Leave out --load-format",
        )


def without_own(stream: Stream, model: torch.nn.Module, folder: str) -> Iterator[Any]:
    """What of the stream the model is to see. The rest goes to its layers; what no layer of this
    rank claimed is of another stage, or of a part of the model that vLLM does not use."""
    claims = [one for layer in model.modules() if (one := layer.__dict__.get(_CLAIMS)) is not None]
    loads = {name: load for one in claims for name, load in one.loads.items()}
    # A stage of a pipeline may have no layer that claimed a tensor.
    manifest = claims[0].manifest if claims else manifest_of(model, folder)
    names = frozenset() if manifest is None else manifest.own_names
    for name, tensor in stream:
        if name not in names:
            yield name, tensor
        elif name in loads:
            loads[name](tensor)
