"""Packing fingerprints: does the installed runtime still read what the folder holds?

The manifest has, per layout, the hash of what prepack makes of fixed probe modules. Here the same
modules go through the runtime's own packer: an upgrade that moves a nibble gives another hash, and
is noticed before a model is served.
"""

from collections.abc import Callable

import torch
import xxhash

from prepack_vllm.errors import Unsupported
from prepack_vllm.layouts import LAYOUTS
from prepack_vllm.layouts.layout import Layout, PackedParts, Probe
from prepack_vllm.manifest import Manifest
from prepack_vllm.probes import probes_of


def fingerprint(layout: Layout, pack: Callable[[Probe], PackedParts]) -> str:
    """As libconvert/prepack/layouts/fingerprint.cpp: name, dtype, shape and bytes of every part."""
    hasher = xxhash.xxh3_128()
    for probe in probes_of(layout):
        packed = pack(probe)
        for part in layout.parts_of(probe.geometry):
            shape = ",".join(str(size) for size in part.shape_in_file)
            hasher.update(f"{part.name} {part.dtype} [{shape}]\n".encode())
            # Sums and the numbers of activations are no business of packing.
            if part.name in packed:
                data = packed[part.name].contiguous().view(torch.uint8)
                hasher.update(data.numpy().tobytes())
    return hasher.hexdigest()


def check_fingerprints(manifest: Manifest) -> None:
    """Refuses a folder whose bytes are not what this plugin and the installed runtime read."""
    for id, entry in manifest.layouts.items():
        layout = LAYOUTS.get(id)
        if layout is None:
            continue  # its modules say so, by name
        if (entry.version, entry.fingerprint) != (layout.version, layout.fingerprint):
            raise Unsupported(
                str(manifest.folder),
                f"the folder was packed for another version of {id}",
                found=f"version {entry.version}, fingerprint {entry.fingerprint}",
                expected=f"version {layout.version}, fingerprint {layout.fingerprint}",
                hint=manifest.rebuild_hint(),
            )
        if layout.packer is None or not layout.packer.runs():
            continue
        actual = fingerprint(layout, layout.packer.pack)
        if actual != entry.fingerprint:
            raise Unsupported(
                str(manifest.folder),
                f"the installed runtime packs {id} in another way than this folder is packed",
                found=f"fingerprint {actual}",
                expected=entry.fingerprint,
                hint="Use the version of the runtime that prepack was made for, or a prepack for "
                f"this one. {manifest.rebuild_hint()}",
            )
