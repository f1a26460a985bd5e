"""What the plug-in puts into vLLM's loaders."""

import functools
from collections.abc import Iterator
from typing import Any

import torch

from prepack_vllm import read_ahead
from prepack_vllm.collector import old_objects_left_out
from prepack_vllm.embeddings import map_embeddings
from prepack_vllm.heads import take_heads
from prepack_vllm.integrity import manifest_of, verified
from prepack_vllm.manifest import Manifest
from prepack_vllm.own_tensors import claims_something, without_own

_QUANT_CONFIG = "prepack_quant_config"  # an attribute of a loader


def _add_own(loaded: set[str] | None, model: torch.nn.Module) -> None:
    """To what the model says that it has loaded. Whether all has come, the methods check."""
    for name, layer in model.named_modules():
        if loaded is not None and claims_something(layer):
            loaded.update(f"{name}.{one}" for one, _ in layer.named_parameters(recurse=False))


def hook_into(loader: type) -> None:
    """Lets `verified` and `without_own` sit between a loader of vLLM and the model, and maps what
    the model embeds with. More than once is as once."""
    read = loader.get_all_weights  # type: ignore[attr-defined]
    if getattr(read, "by_prepack", False):
        return

    @functools.wraps(read)
    def get_all_weights(self: Any, model_config: Any, model: torch.nn.Module) -> Iterator[Any]:
        if manifest_of(model, model_config.model) is not None:
            take_heads(model, getattr(self, _QUANT_CONFIG, None))
            map_embeddings(model)
        stream = verified(read(self, model_config, model), model, model_config.model)
        return without_own(stream, model, model_config.model)

    get_all_weights.by_prepack = True  # type: ignore[attr-defined]
    loader.get_all_weights = get_all_weights  # type: ignore[attr-defined]
    _hook_into_load_model(loader)
    track = getattr(loader, "track_weights_loading", None)
    if track is None:
        return

    @functools.wraps(track)
    def track_weights_loading(
        self: Any, model: torch.nn.Module, loaded: set[str] | None, *more: Any, **named: Any
    ) -> None:
        _add_own(loaded, model)
        track(self, model, loaded, *more, **named)

    loader.track_weights_loading = track_weights_loading  # type: ignore[attr-defined]


def _hook_into_load_model(loader: type) -> None:
    """Tells the loader for which config it reads: a draft model has one of its own. And sees to it
    that of a packed folder's loading nothing takes longer than mapping it."""
    own = loader.__dict__.get("load_model")

    def load_model(self: Any, vllm_config: Any, *more: Any, **named: Any) -> torch.nn.Module:
        setattr(self, _QUANT_CONFIG, vllm_config.quant_config)
        load = super(loader, self).load_model if own is None else functools.partial(own, self)
        manifest = getattr(vllm_config.quant_config, "manifest", None)
        if not isinstance(manifest, Manifest):
            return load(vllm_config, *more, **named)
        if read_ahead.is_wanted():
            read_ahead.begin(manifest)
        with old_objects_left_out():
            return load(vllm_config, *more, **named)

    loader.load_model = load_model  # type: ignore[attr-defined]
