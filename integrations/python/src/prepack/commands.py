"""The commands of prepack as functions. The options have the names and the meaning that they have on
the command line (`prepack COMMAND --help`); what is None is left to the tool."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import List, Literal, Mapping, Optional, Sequence, Tuple, Union, overload

from prepack.progress import ProgressOption
from prepack.record import Page, attach
from prepack.results import (
    Check,
    Convert,
    ConvertGguf,
    Diff,
    Doctor,
    Inspect,
    InspectAt,
    InspectFind,
    InspectLayout,
    InspectValues,
    Measured,
    Merge,
    Plan,
    PlanGguf,
    Targets,
    Tune,
    Verify,
)
from prepack.run import DocumentType, run

PathLike = Union[str, "os.PathLike[str]"]
# One value, some, or pattern → value.
Patterns = Union[None, str, float, Sequence[str], Mapping[str, Union[str, float]]]
Words = Union[None, str, Sequence[str]]
# "3/8" or (3, 8).
PartOption = Union[str, Tuple[int, int]]
# Where to write a page; True for one that is only in the result (`.page`).
HtmlOption = Union[None, bool, PathLike]


class _Arguments:
    def __init__(self, command: str) -> None:
        self.list: List[str] = [command]
        self._paths: List[str] = []

    def path(self, path: PathLike) -> "_Arguments":
        """A positional argument, whatever it begins with."""
        self._paths.append(os.fspath(path))
        return self

    def value(self, option: str, value: Union[None, str, int, float, PathLike]) -> "_Arguments":
        if value is not None:
            self.list.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        return self

    def flag(self, option: str, value: bool) -> "_Arguments":
        if value:
            self.list.append(option)
        return self

    def words(self, option: str, values: Words) -> "_Arguments":
        if values is not None and not isinstance(values, str):
            values = ",".join(values)
        return self.value(option, values or None)

    def patterns(self, option: str, values: Patterns) -> "_Arguments":
        if isinstance(values, Mapping):
            values = [f"{pattern}={value}" for pattern, value in values.items()]
        elif values is not None and (isinstance(values, str) or not isinstance(values, Sequence)):
            values = [str(values)]
        for value in values or ():
            self.value(option, value)
        return self

    def plan(self, target: str, dtype: Optional[str], scheme: Patterns, fallback: Optional[str],
             scales: Optional[str], onednn_form: Optional[str], accept: Patterns, numa: Optional[int],
             fuse: bool) -> "_Arguments":
        self.value("--target", target).value("--dtype", dtype).patterns("--scheme", scheme)
        self.value("--fallback", fallback).value("--scales", scales).value("--onednn-form", onednn_form)
        return self.patterns("--accept", accept).value("--numa", numa).flag("--fuse", fuse)

    def gguf_source(self, like: Optional[PathLike], llama_cpp: Optional[PathLike],
                    python: Optional[PathLike]) -> "_Arguments":
        """What is known of a GGUF file beside what it says."""
        return self.value("--like", like).value("--llama-cpp", llama_cpp).value("--python", python)

    def gguf(self, exact: bool, shard_size: Union[None, int, str], no_tokenizer: bool,
             trust_remote_code: bool) -> "_Arguments":
        self.flag("--exact", exact)
        self.value("--shard-size", shard_size).flag("--no-tokenizer", no_tokenizer)
        return self.flag("--trust-remote-code", trust_remote_code)

    def part(self, part: Optional[PartOption]) -> "_Arguments":
        return self.value("--part", f"{part[0]}/{part[1]}" if isinstance(part, tuple) else part)

    def measuring(self, source: Optional[PathLike], baseline: Optional[PathLike],
                  activations: Optional[PathLike], skip: Words, engine: Optional[str], repack: bool,
                  all_channels: bool, sample: Optional[float], seed: Optional[int]) -> "_Arguments":
        """What decides which values `verify` measures."""
        self.value("--source", source).value("--baseline", baseline).value("--activations", activations)
        self.words("--skip", skip).value("--engine", engine).flag("--repack", repack)
        self.flag("--all-channels", all_channels)
        return self.value("--sample", sample).value("--seed", seed)

    def merge(self, reports: Optional[Sequence[PathLike]]) -> "_Arguments":
        for report in reports or ():
            self.value("--merge", report)
        return self

    def threads(self, jobs: Optional[int], memory_limit: Union[None, int, str]) -> "_Arguments":
        limit = f"{memory_limit}b" if isinstance(memory_limit, int) else memory_limit
        return self.value("--jobs", jobs).value("--memory-limit", limit)

    def all(self) -> List[str]:
        return [*self.list, "--", *self._paths] if self._paths else self.list


def _run_with_page(
    result: "type[DocumentType]", arguments: _Arguments, html: HtmlOption, progress: ProgressOption,
    cancel: Optional[threading.Event], shows_progress: bool = True,
) -> DocumentType:
    if html is None or html is False:
        return run(result, arguments.all(), shows_progress=shows_progress, progress=progress, cancel=cancel)
    with tempfile.TemporaryDirectory(prefix="prepack-") as folder:
        path = Path(folder) / "page.html" if html is True else Path(html)
        arguments.value("--html", path)
        document = run(result, arguments.all(), shows_progress=shows_progress, progress=progress, cancel=cancel)
        if path.exists():
            page = Page(path.read_text(encoding="utf-8"))
            attach(document, document.returncode, document.messages, page)
        return document


# A str that is not known to be "gguf" is taken for another target.
@overload
def plan(  # type: ignore[overload-overlap]
    src: PathLike, *, target: Literal["gguf"], llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None,
    exact: bool = False, no_tokenizer: bool = False, trust_remote_code: bool = False, fallback: Optional[str] = None, accept: Patterns = None,
) -> PlanGguf: ...
@overload
def plan(
    src: PathLike, *, target: str, dtype: Optional[str] = None, scheme: Patterns = None,
    fallback: Optional[str] = None, scales: Optional[str] = None, onednn_form: Optional[str] = None,
    accept: Patterns = None, numa: Optional[int] = None, fuse: bool = False, like: Optional[PathLike] = None,
    llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None,
) -> Plan: ...
def plan(
    src: PathLike, *, target: str, dtype: Optional[str] = None, scheme: Patterns = None,
    fallback: Optional[str] = None, scales: Optional[str] = None, onednn_form: Optional[str] = None,
    accept: Patterns = None, numa: Optional[int] = None, fuse: bool = False, llama_cpp: Optional[PathLike] = None,
    python: Optional[PathLike] = None, exact: bool = False, shard_size: Union[None, int, str] = None,
    no_tokenizer: bool = False, trust_remote_code: bool = False, like: Optional[PathLike] = None,
) -> Union[Plan, PlanGguf]:
    """What `convert` would do and why, from headers only. `ok` is False if it would refuse."""
    arguments = _Arguments("plan").path(src)
    arguments.plan(target, dtype, scheme, fallback, scales, onednn_form, accept, numa, fuse)
    arguments.gguf_source(like, llama_cpp, python)
    arguments.gguf(exact, shard_size, no_tokenizer, trust_remote_code)
    return run(PlanGguf, arguments.all()) if target == "gguf" else run(Plan, arguments.all())


@overload
def convert(  # type: ignore[overload-overlap]
    src: PathLike, output: PathLike, *, target: Literal["gguf"], llama_cpp: Optional[PathLike] = None,
    python: Optional[PathLike] = None, exact: bool = False, shard_size: Union[None, int, str] = None,
    no_tokenizer: bool = False, trust_remote_code: bool = False, fallback: Optional[str] = None, accept: Patterns = None, jobs: Optional[int] = None,
    memory_limit: Union[None, int, str] = None, resume: bool = False, no_flush: bool = False, force: bool = False,
    fetch: Optional[str] = None, ahead: Optional[int] = None, consume: bool = False, done: Optional[str] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None,
) -> ConvertGguf: ...
@overload
def convert(
    src: PathLike, output: PathLike, *, target: str, dtype: Optional[str] = None, scheme: Patterns = None,
    fallback: Optional[str] = None, scales: Optional[str] = None, onednn_form: Optional[str] = None,
    accept: Patterns = None, numa: Optional[int] = None, fuse: bool = False, jobs: Optional[int] = None,
    memory_limit: Union[None, int, str] = None, part: Optional[PartOption] = None,
    trust_source: bool = False, resume: bool = False, no_flush: bool = False, force: bool = False,
    fetch: Optional[str] = None, ahead: Optional[int] = None, consume: bool = False, done: Optional[str] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None, like: Optional[PathLike] = None,
    llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None,
) -> Convert: ...
def convert(
    src: PathLike, output: PathLike, *, target: str, dtype: Optional[str] = None, scheme: Patterns = None,
    fallback: Optional[str] = None, scales: Optional[str] = None, onednn_form: Optional[str] = None,
    accept: Patterns = None, numa: Optional[int] = None, fuse: bool = False, jobs: Optional[int] = None,
    memory_limit: Union[None, int, str] = None, part: Optional[PartOption] = None,
    trust_source: bool = False, resume: bool = False, no_flush: bool = False, force: bool = False,
    fetch: Optional[str] = None, ahead: Optional[int] = None, consume: bool = False, done: Optional[str] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None, llama_cpp: Optional[PathLike] = None,
    python: Optional[PathLike] = None, exact: bool = False, shard_size: Union[None, int, str] = None,
    no_tokenizer: bool = False, trust_remote_code: bool = False, like: Optional[PathLike] = None,
) -> Union[Convert, ConvertGguf]:
    """Packs a checkpoint into the folder `output`, or the GGUF file, which appears whole or not at all.
    `fetch` and `done` are commands of the shell (docs/remote.md); with `consume`, shards of the source
    are removed when they have been packed."""
    arguments = _Arguments("convert").path(src).value("--output", output)
    arguments.plan(target, dtype, scheme, fallback, scales, onednn_form, accept, numa, fuse)
    arguments.gguf_source(like, llama_cpp, python)
    arguments.gguf(exact, shard_size, no_tokenizer, trust_remote_code)
    arguments.threads(jobs, memory_limit)
    arguments.part(part).flag("--trust-source", trust_source).flag("--resume", resume)
    arguments.value("--fetch", fetch).value("--ahead", ahead).flag("--consume", consume).value("--done", done)
    arguments.flag("--no-flush", no_flush).flag("--force", force)
    if target == "gguf":
        return run(ConvertGguf, arguments.all(), shows_progress=True, progress=progress, cancel=cancel)
    return run(Convert, arguments.all(), shows_progress=True, progress=progress, cancel=cancel)


def merge(
    output: PathLike, *, force: bool = False, keep_parts: bool = False, progress: ProgressOption = None,
    cancel: Optional[threading.Event] = None,
) -> Merge:
    """Joins the parts that `convert(..., part=(i, n))` made beside `output`."""
    arguments = _Arguments("merge").path(output).flag("--force", force).flag("--keep-parts", keep_parts)
    return run(Merge, arguments.all(), shows_progress=True, progress=progress, cancel=cancel)


def verify(
    folder: PathLike, *, source: Optional[PathLike] = None, baseline: Optional[PathLike] = None,
    activations: Optional[PathLike] = None, skip: Words = None, engine: Optional[str] = None,
    repack: bool = False, all_channels: bool = False, min_sqnr: Patterns = None, strict: bool = False, sample: Optional[float] = None,
    seed: Optional[int] = None, against: Optional[PathLike] = None, tolerance: Optional[float] = None,
    junit: Optional[PathLike] = None, markdown: Optional[PathLike] = None, html: HtmlOption = None,
    jobs: Optional[int] = None, memory_limit: Union[None, int, str] = None,
    merge: Optional[Sequence[PathLike]] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None, like: Optional[PathLike] = None,
    llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None, fetch: Optional[str] = None,
) -> Verify:
    """Proves that a packed folder holds the model. Whatever the verdict, it is the result that says
    so: look at `verdict` or `ok`, or call `raise_if_bad()`. With `merge`, the reports that
    `verify_part` wrote, it reads no weights."""
    arguments = _Arguments("verify").path(folder)
    arguments.measuring(source, baseline, activations, skip, engine, repack, all_channels, sample, seed).value("--fetch", fetch)
    arguments.patterns("--min-sqnr", min_sqnr).flag("--strict", strict).value("--against", against)
    arguments.value("--tolerance", tolerance).value("--junit", junit).value("--markdown", markdown)
    arguments.merge(merge).threads(jobs, memory_limit).gguf_source(like, llama_cpp, python)
    return _run_with_page(Verify, arguments, html, progress, cancel)


def verify_part(
    folder: PathLike, report: PathLike, *, part: PartOption, source: Optional[PathLike] = None,
    baseline: Optional[PathLike] = None, activations: Optional[PathLike] = None, skip: Words = None,
    engine: Optional[str] = None, repack: bool = False, all_channels: bool = False,
    sample: Optional[float] = None, seed: Optional[int] = None, jobs: Optional[int] = None,
    memory_limit: Union[None, int, str] = None, progress: ProgressOption = None,
    cancel: Optional[threading.Event] = None, like: Optional[PathLike] = None,
    llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None, fetch: Optional[str] = None,
) -> Measured:
    """The share of one of many machines: writes what it measured to `report`. `verify(...,
    merge=reports)` gives the verdict. `fetch` is a command of the shell, for shards of which only headers are
    here (docs/remote.md)."""
    arguments = _Arguments("verify").path(folder).part(part).value("--report", report)
    arguments.measuring(source, baseline, activations, skip, engine, repack, all_channels, sample, seed).value("--fetch", fetch)
    arguments.threads(jobs, memory_limit).gguf_source(like, llama_cpp, python)
    return run(Measured, arguments.all(), shows_progress=True, progress=progress, cancel=cancel)


def check(
    src: PathLike, *, headers: bool = False, baseline: Optional[PathLike] = None,
    accept: Patterns = None, strict: bool = False, junit: Optional[PathLike] = None, html: HtmlOption = None, jobs: Optional[int] = None,
    memory_limit: Union[None, int, str] = None, merge: Optional[Sequence[PathLike]] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None,
) -> Check:
    """Is a quantized checkpoint complete and sane? As with `verify`, the result says so."""
    arguments = _Arguments("check").path(src).flag("--headers", headers).value("--baseline", baseline)
    arguments.patterns("--accept", accept).flag("--strict", strict).value("--junit", junit).merge(merge)
    return _run_with_page(Check, arguments.threads(jobs, memory_limit), html, progress, cancel)


def check_part(
    src: PathLike, report: PathLike, *, part: PartOption, baseline: Optional[PathLike] = None,
    accept: Patterns = None, jobs: Optional[int] = None, memory_limit: Union[None, int, str] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None,
) -> Measured:
    """As `verify_part`, for `check`."""
    arguments = _Arguments("check").path(src).part(part).value("--report", report)
    arguments.value("--baseline", baseline).patterns("--accept", accept).threads(jobs, memory_limit)
    return run(Measured, arguments.all(), shows_progress=True, progress=progress, cancel=cancel)


def diff(
    a: PathLike, b: PathLike, *, headers: bool = False, module: Optional[str] = None, accept: Patterns = None,
    html: HtmlOption = None, jobs: Optional[int] = None, memory_limit: Union[None, int, str] = None,
    progress: ProgressOption = None, cancel: Optional[threading.Event] = None, like: Optional[PathLike] = None,
    llama_cpp: Optional[PathLike] = None, python: Optional[PathLike] = None,
) -> Diff:
    """Compares two checkpoints by what their weights mean. `same`, and `ok`, say whether they agree;
    with `headers`, only names, shapes and dtypes are compared."""
    arguments = _Arguments("diff").path(a).path(b).flag("--headers", headers).value("--module", module)
    arguments.patterns("--accept", accept)
    arguments.gguf_source(like, llama_cpp, python)
    return _run_with_page(Diff, arguments.threads(jobs, memory_limit), html, progress, cancel)


def inspect(path: PathLike, *, module: Optional[str] = None, html: HtmlOption = None) -> Inspect:
    """What a checkpoint, packed folder or .safetensors file holds; with `module`, one module and
    statistics of its numbers."""
    arguments = _Arguments("inspect").path(path).value("--module", module)
    return _run_with_page(Inspect, arguments, html, None, None, shows_progress=False)


def inspect_find(path: PathLike, module: str, n: int, k: int, *, source: Optional[PathLike] = None) -> InspectFind:
    """Which bytes hold weight (n, k) of a module, its scale and its zero point."""
    arguments = _Arguments("inspect").path(path).value("--source", source)
    arguments.list += ["--find", module, str(n), str(k)]
    return run(InspectFind, arguments.all())


def inspect_at(path: PathLike, file: str, offset: int) -> InspectAt:
    """What a byte of a file holds."""
    return run(InspectAt, _Arguments("inspect").path(path).value("--at", f"{file}:{offset}").all())


def inspect_layout(path: PathLike, module: str, *, source: Optional[PathLike] = None) -> InspectLayout:
    """Which weight each of a module's first nibbles or bytes holds."""
    arguments = _Arguments("inspect").path(path).value("--layout", module).value("--source", source)
    return run(InspectLayout, arguments.all())


def inspect_values(
    path: PathLike, module: str, *, rows: Tuple[int, int] = (0, 4), cols: Tuple[int, int] = (0, 16),
    codes: bool = False, bytes: bool = False,
) -> InspectValues:
    """Some weights of a module. `arrays` gives all of them."""
    arguments = _Arguments("inspect").path(path).value("--values", module)
    arguments.value("--rows", f"{rows[0]}:{rows[1]}").value("--cols", f"{cols[0]}:{cols[1]}")
    return run(InspectValues, arguments.flag("--codes", codes).flag("--bytes", bytes).all())


def doctor(*folders: PathLike, python: Optional[PathLike] = None) -> Doctor:
    """What this machine can run, and whether folders fit it: `ok` is False if one does not."""
    arguments = _Arguments("doctor").value("--python", python)
    for folder in folders:
        arguments.path(folder)
    return run(Doctor, arguments.all())


def tune(
    src: PathLike, *, target: Words, batch: Union[None, int, Sequence[int]] = None, threads: Optional[int] = None,
    layers: Optional[int] = None, time: Optional[float] = None, activations: Optional[PathLike] = None,
    python: Optional[PathLike] = None, dtype: Optional[str] = None, fallback: Optional[str] = None,
    accept: Patterns = None, goal: Optional[str] = None, min_sqnr: Optional[float] = None,
    output: Optional[PathLike] = None, html: HtmlOption = None, progress: ProgressOption = None,
    cancel: Optional[threading.Event] = None,
) -> Tune:
    """Measures which layouts are the fastest on this machine, and recommends: `choice` is None where
    nothing can be. `goal` is what the command line calls --for. `choice.schemes` goes to `convert`."""
    arguments = _Arguments("tune").path(src).words("--target", target)
    batches = [batch] if isinstance(batch, int) else batch
    arguments.words("--batch", None if batches is None else [str(rows) for rows in batches])
    arguments.value("--threads", threads).value("--layers", layers).value("--time", time)
    arguments.value("--activations", activations).value("--python", python).value("--dtype", dtype)
    arguments.value("--fallback", fallback).patterns("--accept", accept).value("--for", goal)
    arguments.value("--min-sqnr", min_sqnr).value("--output", output)
    return _run_with_page(Tune, arguments, html, progress, cancel)


def targets() -> Targets:
    """Every layout: what it takes, and which kernel reads it."""
    return run(Targets, _Arguments("targets").all())
