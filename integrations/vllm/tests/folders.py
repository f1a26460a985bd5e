"""Packed folders of the project's fixtures, and ways to damage them. For tests only."""

import json
import math
from pathlib import Path

import torch
import xxhash
from safetensors import safe_open
from safetensors.torch import save_file

CHECKPOINTS = Path(__file__).resolve().parents[3] / "fixtures" / "checkpoints"
DOWN = "model.layers.0.mlp.down_proj"


def write_manifest(folder: Path, document: dict) -> None:
    """With its own hash. prepack writes the same JSON with fewer line breaks."""
    document.pop("manifest_xxh3_128", None)
    text = json.dumps(document, indent=2)[: -len("\n}")]
    digest = xxhash.xxh3_128_hexdigest(text.encode())
    (folder / "prepack.json").write_text(f'{text},\n  "manifest_xxh3_128": "{digest}"\n}}\n')


def edit_manifest(folder: Path, change) -> None:
    document = json.loads((folder / "prepack.json").read_text())
    change(document)
    write_manifest(folder, document)


def edit_tensors(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    change(tensors)
    save_file(tensors, path)


def follow_file(folder: Path) -> None:
    """Makes the manifest say what the file says, where save_file put tensors elsewhere."""
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))

    def change(document):
        entries = [p for module in document["modules"].values() for p in module["parts"].values()]
        for entry in entries + document["tensors"]:
            found = header.get(entry["tensor"])
            if found is not None:
                entry["offset"] = 8 + length + found["data_offsets"][0]

    edit_manifest(folder, change)


def keep(folder: Path, source: Path, suffix: str) -> None:
    """Leaves modules as they are stored in the source, as if no layout had taken them."""
    document = json.loads((folder / "prepack.json").read_text())
    kept = [name for name in document["modules"] if name.endswith(suffix)]

    def change(tensors):
        for name in kept:
            for part in document["modules"].pop(name)["parts"].values():
                del tensors[part["tensor"]]
            document["kept"][name] = "for a test"
        with safe_open(source / "model.safetensors", framework="pt") as file:
            for name in file.keys():
                if name.rsplit(".", 1)[0] in kept:
                    tensors[name] = file.get_tensor(name)
                    document["tensors"].append(_entry(name, tensors[name]))

    edit_tensors(folder, change)
    write_manifest(folder, document)
    follow_file(folder)


def _entry(name: str, tensor: torch.Tensor) -> dict:
    dtypes = {torch.int32: "I32", torch.int64: "I64", torch.bfloat16: "BF16", torch.float16: "F16"}
    return {
        "tensor": name, "file": "model.safetensors", "offset": 0, "dtype": dtypes[tensor.dtype],
        "shape": list(tensor.shape), "xxh3_128": hash_of(tensor),
    }  # fmt: skip


def hash_of(tensor: torch.Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def damage(folder: Path, name: str) -> None:
    """Flips one bit in the middle of a tensor, in place."""
    document = json.loads((folder / "prepack.json").read_text())
    entries = [part for one in document["modules"].values() for part in one["parts"].values()]
    entry = next(one for one in entries + document["tensors"] if one["tensor"] == name)
    place = entry["offset"] + math.prod(entry["shape"]) // 2
    with open(folder / entry["file"], "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
