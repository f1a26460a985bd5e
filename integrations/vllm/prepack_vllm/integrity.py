"""Are the bytes that are loaded those that were packed? The manifest has a hash of every tensor."""

import os
from collections.abc import Iterable, Iterator

import torch
import xxhash
from vllm.config import get_current_vllm_config_or_none

from prepack_vllm.errors import Malformed
from prepack_vllm.manifest import Manifest, TensorEntry

# 0: nothing is compared. 1: everything. Unset: what is read anyway, because it is copied; a tensor
# that is mapped is read when it is first used, and only as far as it is used.
VERIFY_VARIABLE = "PREPACK_VLLM_VERIFY"


def is_damaged(entry: TensorEntry, stored: torch.Tensor) -> bool:
    data = stored.contiguous().reshape(-1).view(torch.uint8).numpy()
    return xxhash.xxh3_128_hexdigest(data) != entry.xxh3_128


def verified(
    stream: Iterable[tuple[str, torch.Tensor]], model: torch.nn.Module, folder: str
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that vLLM's loader reads, each compared before the model sees it."""
    manifest = manifest_of(model, folder)
    if manifest is None:
        yield from stream
        return
    mode = os.environ.get(VERIFY_VARIABLE, "")
    if mode not in ("", "0", "1"):
        raise Malformed(VERIFY_VARIABLE, "unknown value", found=mode, expected="0 or 1")
    entries = {} if mode == "0" else {entry.name: entry for entry in manifest.all_tensors()}
    if mode == "":
        for name in _mapped(model):
            del entries[name]
    for name, tensor in stream:
        entry = entries.get(name)
        if entry is not None and is_damaged(entry, tensor):
            raise _error(manifest, entry)
        yield name, tensor


def _error(manifest: Manifest, entry: TensorEntry) -> Malformed:
    module, _, part = entry.name.rpartition(".")
    return Malformed(
        module or entry.name,
        f"part {part} is damaged: its bytes in {manifest.folder / entry.file} are not those that "
        "were packed",
        hint=f"Copy the file again, or pack the checkpoint again. {VERIFY_VARIABLE}=0 loads it all "
        "the same",
    )


def manifest_of(model: torch.nn.Module, folder: str) -> Manifest | None:
    """Of a model from a packed folder. A draft model may come from another than the model."""
    for layer in model.modules():
        manifest = getattr(getattr(layer, "quant_method", None), "manifest", None)
        if isinstance(manifest, Manifest):
            return manifest
    config = get_current_vllm_config_or_none()
    manifest = getattr(config and config.quant_config, "manifest", None)
    # Without a packed layer, as a stage of a pipeline may be.
    return manifest if isinstance(manifest, Manifest) and str(manifest.folder) == folder else None


def _mapped(model: torch.nn.Module) -> Iterator[str]:
    for layer in model.modules():
        names = getattr(getattr(layer, "quant_method", None), "mapped_tensors", None)
        if names is not None:
            yield from names()
