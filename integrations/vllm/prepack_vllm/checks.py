"""All that can be checked before a weight is read: milliseconds."""

from pathlib import Path

from prepack_vllm.expert_grid import check_every_expert
from prepack_vllm.fingerprints import check_fingerprints
from prepack_vllm.headers import check_headers
from prepack_vllm.layouts import module_parts
from prepack_vllm.manifest import Manifest, read_manifest
from prepack_vllm.names import check_names
from prepack_vllm.platform import check_platform, check_target


def check_folder(folder: Path) -> Manifest:
    """The manifest of a folder that is whole and that this machine can run."""
    manifest = read_manifest(folder)
    check_target(manifest)
    for module in manifest.modules.values():
        module_parts(module, manifest)
    check_names(manifest)
    check_every_expert(manifest)
    check_headers(manifest)
    check_platform(manifest)
    check_fingerprints(manifest)
    return manifest
