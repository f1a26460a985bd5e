"""Quantized checkpoints of the models of model_classes.py."""

import json
import re
from pathlib import Path
from typing import Any

import torch
from class_forms import FORMS
from model_classes import CLASSES, ModelClass, ignored_modules, is_quantized, random_tensors
from safetensors.torch import save_file
from tiny_models import write_tokenizer


def write_class(folder: Path, key: str, form: str = "ct", rounded: str = "") -> Path:
    return write_model(folder, CLASSES[key], form, rounded)


def write_model(folder: Path, one: ModelClass, form: str, rounded: str = "") -> Path:
    """`form`: one of FORMS. `rounded`: modules that are stored in bf16, with the values that
    quantizing has left."""
    config, tensors = random_tensors(one)
    weights = [name for name, tensor in tensors.items() if is_quantized(one, name, tensor)]
    plain = [name for name in weights if re.fullmatch(rounded, name.removesuffix(".weight"))]
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name not in weights:
            stored[name] = tensor
            continue
        parts, values = FORMS[form].parts(tensor)
        if name in plain:
            parts = {"weight": values}
        module = name.removesuffix(".weight")
        stored |= {f"{module}.{part}": value for part, value in parts.items()}
    config["architectures"] = [one.architecture]
    if plain != weights:
        # vLLM looks for a layer's own name in this list, which is not always that of its place.
        ignored = ignored_modules(one, tensors) + ([f"re:{rounded}"] if rounded else [])
        ignored += [name.removesuffix(".weight") for name in plain]
        config["quantization_config"] = FORMS[form].config(ignored)
    write_folder(folder, one, config, stored)
    return folder


def write_folder(
    folder: Path, one: ModelClass, config: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    if one.preprocessor:
        (folder / "preprocessor_config.json").write_text(json.dumps(one.preprocessor))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
