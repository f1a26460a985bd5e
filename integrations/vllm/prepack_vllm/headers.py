"""Are the tensors of a folder those of its manifest? Asked of the headers: milliseconds."""

from pathlib import Path
from typing import Any

from prepack_vllm.errors import Malformed
from prepack_vllm.manifest import Manifest, TensorEntry
from prepack_vllm.strict_json import parse

_MAX_HEADER_BYTES = 100_000_000  # as the safetensors library has it
_INDEX = "model.safetensors.index.json"
_HINT = "Copy the folder again, or pack the checkpoint again"


def check_headers(manifest: Manifest) -> None:
    """Every tensor of the manifest is there with its dtype, shape and place, and no other is.

    vLLM itself does not notice when a tensor of a quantized model is missing.
    """
    entries = manifest.all_tensors()
    expected = {entry.name: entry for entry in entries}
    if len(expected) != len(entries):
        raise Malformed(str(manifest.folder), "the manifest names a tensor twice")
    files = {entry.file for entry in entries}
    for path in sorted(manifest.folder.glob("*.safetensors")):
        if path.name not in files:  # vLLM would load it
            raise Malformed(str(path), "the file is not in the manifest", hint=_HINT)
    _check_loaded(manifest.folder, files)
    for file in sorted(files):
        path = manifest.folder / file
        begin, header = read_header(path)
        for name, found in header.items():
            entry = expected.get(name)
            if entry is None or entry.file != file:
                raise Malformed(str(path), f"tensor {name} is not in the manifest", hint=_HINT)
            _check_tensor(path, begin, found, entry)
            del expected[name]
    if expected:
        name, entry = next(iter(expected.items()))
        more = f", and {len(expected) - 1} more" if len(expected) > 1 else ""
        raise Malformed(
            str(manifest.folder / entry.file), f"tensor {name} is missing{more}", hint=_HINT
        )


def _check_loaded(folder: Path, files: set[str]) -> None:
    """vLLM passes over hidden files, and over all that an index does not name."""
    for file in sorted(files):
        if file.startswith(".") or not file.endswith(".safetensors"):
            raise Malformed(str(folder / file), "vLLM does not take this name for weights", hint=_HINT)
    path = folder / _INDEX
    if not path.is_file():
        return
    try:
        named = set(parse(path.read_bytes())["weight_map"].values())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(str(path), f"this is no index: {error}", hint=_HINT) from error
    if named != files:
        file = min(map(str, named ^ files))
        what = "names another file than the manifest" if file in named else "does not name a file"
        raise Malformed(str(path), f"the index {what}", found=file, hint=_HINT)


def read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and the tensors by name."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _MAX_HEADER_BYTES:
                raise Malformed(str(path), "the header is too long", found=length, hint=_HINT)
            header = parse(file.read(length))
    except FileNotFoundError as error:
        raise Malformed(str(path), "the file is missing", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, Malformed):
            raise
        raise Malformed(str(path), f"the header is no JSON: {error}", hint=_HINT) from error
    if not isinstance(header, dict):
        raise Malformed(str(path), "the header is no JSON object", hint=_HINT)
    header.pop("__metadata__", None)
    return 8 + length, header


def _check_tensor(path: Path, begin: int, found: Any, entry: TensorEntry) -> None:
    try:
        dtype, shape, (first, last) = found["dtype"], tuple(found["shape"]), found["data_offsets"]
        if not all(type(one) is int for one in (*shape, first, last)):
            raise TypeError("sizes are integers")
        actual = (dtype, shape, begin + first)
        end = begin + last
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(str(path), f"the header of tensor {entry.name} is malformed") from error
    if actual != (entry.dtype, entry.shape, entry.offset):
        raise Malformed(
            str(path),
            f"tensor {entry.name} is not what the manifest says",
            found=f"{dtype} {list(shape)} at {begin + first}",
            expected=f"{entry.dtype} {list(entry.shape)} at {entry.offset}",
            hint=_HINT,
        )
    if end > path.stat().st_size:
        raise Malformed(str(path), f"the file ends inside tensor {entry.name}", hint=_HINT)
