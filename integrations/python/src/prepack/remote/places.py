"""Where a model is: what URLs mean, which files are there, and how ranges of them are read."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Callable, Dict, List, Optional, Tuple
from urllib.parse import quote, urlsplit

from prepack.errors import Error, MalformedError, SystemFailedError, UnavailableError, UsageError, printable
from prepack.remote.entry import Entry, check_name
from prepack.remote.http_ranges import HttpFiles, changed_error

# The files of a model that the tool reads beside the weights.
CONFIGS = ("config.json", "hf_quant_config.json", "params.json", "prepack.json", "quant_config.json",
           "quantization_config.json", "quantize_config.json")
# What `convert` copies, where a server cannot list what it has.
_SIDE_FILES = ("added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json",
               "merges.txt", "preprocessor_config.json", "special_tokens_map.json", "tokenizer.json",
               "tokenizer.model", "tokenizer_config.json", "vocab.json")
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
INDEX_ENDING = ".safetensors.index.json"
WEIGHTS = (".safetensors", ".gguf")
_MOST_FILES = 100_000
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_CONNECTIONS = 8

Listing = Dict[str, Entry]
# A small file that an earlier question has fetched, if it is still of this version.
Known = Callable[[str, Entry], Optional[bytes]]


class Place:
    """A folder on some server; with `file`, one file in it (and the others of a split model)."""

    def __init__(self, url: str, file: Optional[str]) -> None:
        self.url = url  # of the folder
        self.file = file

    def list(self, side_files: bool, known: Known) -> Listing:
        """What is there."""
        raise NotImplementedError

    def read(self, name: str, begin: int, end: int, entry: Entry) -> bytes:
        """Bytes [begin, end) of a file."""
        raise NotImplementedError

    def find(self, name: str) -> Entry:
        """What is known of one file."""
        entry = self.list(True, lambda name, entry: None).get(name)
        if entry is None:
            raise SystemFailedError("there is no such file", where=self.where(name))
        return entry

    def where(self, name: str) -> str:
        return f"{self.url}/{name}"


class HttpPlace(Place):
    """A server that need not list what it has: the names are those that every model has."""

    def __init__(self, url: str, file: Optional[str]) -> None:
        super().__init__(url, file)
        self._http = HttpFiles()

    def where(self, name: str) -> str:
        return f"{self.url}/{quote(name)}"

    def find(self, name: str) -> Entry:
        entry = self._http.look(self.where(name))
        if entry is None:
            raise SystemFailedError("there is no such file", where=self.where(name))
        return entry

    def _look(self, names: List[str]) -> Listing:
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            found = pool.map(lambda name: self._http.look(self.where(name)), names)
            return {name: entry for name, entry in zip(names, found) if entry is not None}

    def list(self, side_files: bool, known: Known) -> Listing:
        if self.file is not None:
            return self._found(self._look(_with_splits(self.file)))
        names = [*CONFIGS, _INDEX, _WHOLE, *(_SIDE_FILES if side_files else ())]
        listing = self._look(names)
        index = listing.get(_INDEX)
        if index is not None:
            text = known(_INDEX, index)
            text = self.read(_INDEX, 0, index.size, index) if text is None else text
            shards = _shards_of(text, self.where(_INDEX))
            listing.update(self._look([name for name in shards if name not in listing]))
            _check_all_there(self, shards, listing)
        return self._found(listing)

    def _found(self, listing: Listing) -> Listing:
        if not any(name.endswith(WEIGHTS) for name in listing):
            wanted = self.file or f"{_INDEX} or {_WHOLE}"
            raise SystemFailedError("there is no model here", where=self.url, expected=wanted,
                                    hint="Check the address; it may also be that of a .gguf or .safetensors file")
        return listing

    def read(self, name: str, begin: int, end: int, entry: Entry) -> bytes:
        return self._http.read(self.where(name), begin, end, entry)


class HubPlace(Place):
    """The hub of Hugging Face, or where HF_ENDPOINT says. A revision stands for the commit that it was
    when the files were listed."""

    def __init__(self, url: str, file: Optional[str]) -> None:
        super().__init__(url, file)
        rest = url.partition("://")[2]
        match = re.fullmatch(r"([^/@]+/[^/@]+)(?:@((?:refs/[^/]+/)?[^/]+))?(?:/(.*))?", rest)
        if match is None:
            raise UsageError("not a model of the hub", where=url, expected="hf://ORG/NAME@REVISION")
        self._model, self._revision, self._folder = match[1], match[2], match[3] or ""
        self._hub = _import("huggingface_hub", "hf")
        self._http = HttpFiles(_import("huggingface_hub.utils", "hf").build_hf_headers())
        self._commit = ""

    def list(self, side_files: bool, known: Known) -> Listing:
        api = self._hub.HfApi()
        try:
            self._commit = str(api.model_info(self._model, revision=self._revision).sha)
            tree = list(api.list_repo_tree(self._model, self._folder or None, revision=self._commit))
        except Exception as error:  # of the libraries below it, too
            raise failed(error, self.url) from error
        listing = {}
        for file in tree:
            if not hasattr(file, "blob_id"):
                continue  # a folder
            lfs = getattr(file, "lfs", None)
            sha256 = None if lfs is None else str(lfs.sha256)
            listing[str(file.path).rpartition("/")[2]] = Entry(int(file.size), sha256 or str(file.blob_id),
                                                                sha256=sha256)
        return listing

    def read(self, name: str, begin: int, end: int, entry: Entry) -> bytes:
        path = f"{self._folder}/{name}".lstrip("/")
        url = self._hub.hf_hub_url(self._model, path, revision=self._commit)
        return self._http.read(url, begin, end, entry)


class FsspecPlace(Place):
    """Whatever fsspec knows: s3, gs, az, sftp, file …"""

    def __init__(self, url: str, file: Optional[str]) -> None:
        super().__init__(url, file)
        fsspec = _import("fsspec", "fsspec")
        try:
            self._fs, self._path = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise UnavailableError(str(error), where=url) from error
        except Exception as error:
            raise failed(error, url) from error

    def list(self, side_files: bool, known: Known) -> Listing:
        try:
            self._fs.invalidate_cache()
            found = self._fs.ls(self._path, detail=True)
        except Exception as error:
            raise failed(error, self.url) from error
        listing = {}
        for item in found:
            if item.get("type") == "file":
                listing[str(item["name"]).rpartition("/")[2]] = _entry_of(item, self.url)
        return listing

    def find(self, name: str) -> Entry:
        try:
            self._fs.invalidate_cache()
            return _entry_of(self._fs.info(f"{self._path.rstrip('/')}/{name}"), self.where(name))
        except FileNotFoundError as error:
            raise SystemFailedError("there is no such file", where=self.where(name)) from error
        except Exception as error:
            raise failed(error, self.where(name)) from error

    def read(self, name: str, begin: int, end: int, entry: Entry) -> bytes:
        path = f"{self._path.rstrip('/')}/{name}"
        try:
            data = bytes(self._fs.cat_file(path, start=begin, end=end))
            self._fs.invalidate_cache()
            now = _entry_of(self._fs.info(path), self.url)
        except Exception as error:
            raise failed(error, self.where(name)) from error
        if now != entry:
            raise changed_error(self.where(name), f"{now.size} bytes, version {now.version}",
                                f"{entry.size} bytes, version {entry.version}")
        if len(data) != end - begin:
            raise SystemFailedError("the server sends another number of bytes than was asked for",
                                    where=self.where(name), found=len(data), expected=end - begin)
        return data


def _entry_of(item: Dict[str, Any], where: str) -> Entry:
    size = item.get("size")
    if not isinstance(size, int) or not 0 <= size < 1 << 62:
        raise MalformedError("the server does not say how large the file is", where=where, found=size)
    # What fsspec's file systems call a version: S3, Google, Azure, and all that have only a time.
    for key in ("ETag", "etag", "md5Hash", "content_md5", "generation", "LastModified", "mtime", "updated"):
        if item.get(key) is not None:
            return Entry(size, f"{item[key]}")
    return Entry(size, None)


def failed(error: BaseException, where: str, what: str = "cannot read it") -> Error:
    if isinstance(error, Error):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    return SystemFailedError(what, where=where, found=text,
                             hint="Check the address, and the login that it needs")


def _import(name: str, protocol: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UnavailableError(
            f"the Python package {package} is not installed", where=f"{protocol}://",
            hint="Install prepack-llm[remote], and what the protocol needs besides",
        ) from error


def _shards_of(text: bytes, where: str) -> List[str]:
    try:
        weight_map = json.loads(text)["weight_map"]
        shards = sorted({check_name(shard, where) for shard in weight_map.values()})
    except Error:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedError("not an index of shards", where=where, expected='"weight_map"') from error
    if len(shards) > _MOST_FILES:
        raise MalformedError("too many shards", where=where, found=len(shards), expected=f"at most {_MOST_FILES}")
    return shards


def _check_all_there(place: Place, shards: List[str], listing: Listing) -> None:
    for name in shards:
        if name not in listing:
            raise MalformedError("the index names a shard that is not there", where=place.where(name),
                                 hint="Is the upload complete?")


def _with_splits(name: str) -> List[str]:
    """All files of a split GGUF model, of which one is named."""
    match = _SPLIT.fullmatch(name)
    if match is None:
        return [name]
    return [f"{match[1]}-{number:05}-of-{match[3]}.gguf" for number in range(1, int(match[3]) + 1)]


def place_of(url: str) -> Place:
    """What a URL names."""
    protocol, separator, rest = url.partition("://")
    if not separator or not rest or not url.isprintable():
        raise UsageError("not a URL", where=printable(url), expected="hf://…, s3://…, https://…")
    folder, file = url.rstrip("/"), None
    if folder.endswith(WEIGHTS):
        folder, _, file = folder.rpartition("/")
        check_name(file, url)
    if protocol in ("http", "https"):
        if urlsplit(url).query or urlsplit(url).fragment:
            raise UsageError("an address with a query names no folder", where=url)
        return HttpPlace(folder, file)
    return HubPlace(folder, file) if protocol == "hf" else FsspecPlace(folder, file)


def wanted_files(place: Place, listing: Listing, side_files: bool) -> Tuple[List[str], List[str]]:
    """(weights, of which headers are wanted; small files, which are wanted whole)."""
    if len(listing) > _MOST_FILES:
        raise MalformedError("too many files", where=place.url, found=len(listing), expected=f"at most {_MOST_FILES}")
    if place.file is not None:
        weights = [name for name in _with_splits(place.file) if name in listing]
        if len(weights) != len(_with_splits(place.file)):
            raise SystemFailedError("there is no such file", where=place.where(place.file))
        return weights, []
    names = [check_name(name, place.url) for name in sorted(listing) if not name.startswith(".")]
    weights = [name for name in names if name.endswith(".safetensors")]
    if not weights:
        raise SystemFailedError("there is no model here", where=place.url, expected="*.safetensors",
                                hint="Check the address; it may also be that of a .gguf file")
    small = [name for name in names if name in CONFIGS or name.endswith(INDEX_ENDING)
             or (side_files and not name.endswith((*WEIGHTS, ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack")))]
    return weights, small
