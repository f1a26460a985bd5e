"""Runs vLLM on one folder in a process of its own, and says what it generated and what it took.

The process is forked off one that has imported vLLM and loaded nothing: every run starts alike, and
quickly."""

import multiprocessing
import os
import re
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1024  # kB of /proc


@dataclass(frozen=True)
class Run:
    """`error` says why there is nothing else."""

    generated: Any = None
    error: str = ""
    load_seconds: float = 0.0
    peak_mib: float = 0.0  # of all memory while the model was loaded, above what there was before
    anonymous_mib: float = 0.0  # memory without a file behind it, after loading, above that before


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1])


def _measure_loading(figures: dict[str, float]) -> None:
    from vllm.model_executor.model_loader import base_loader

    load = base_loader.BaseModelLoader.load_model

    def load_model(*positional, **named):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
        before, anonymous = _status("VmRSS"), _status("RssAnon")
        start = time.perf_counter()
        model = load(*positional, **named)
        # A draft model is loaded after the model itself: both count.
        figures["load_seconds"] = figures.get("load_seconds", 0) + time.perf_counter() - start
        peak = (_status("VmHWM") - before) / MIB
        figures["peak_mib"] = max(figures.get("peak_mib", 0), peak)
        more = (_status("RssAnon") - anonymous) / MIB
        figures["anonymous_mib"] = figures.get("anonymous_mib", 0) + more
        return model

    base_loader.BaseModelLoader.load_model = load_model


# What vLLM is led to: nothing, what it takes by itself on machines with AMX only, or that and, for
# weights in bf16 that `--fuse` packs, the op that it takes there for small ones.
STOCK, AMX, AMX_PLAIN = "stock", "amx", "amx_plain"


def take_amx_path(path: str) -> None:
    """vLLM's own classes and choices."""
    import own_path
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe

    class Setter:
        setattr = staticmethod(setattr)

    own_path.take_experts(Setter)
    own_path.take_fp8_blocks(Setter)
    own_path.take_int8(Setter)
    cls = cpu_moe.CPUExpertsMxfp4
    cls._supports_current_device = staticmethod(lambda: True)
    if path == AMX_PLAIN:
        own_path.take_plain(Setter)


def run_here(folder: Path, path: str, use: Any, options: dict[str, Any]) -> Run:
    """`use`: from a folder and options to what is compared."""
    figures: dict[str, float] = {}
    try:
        _measure_loading(figures)
        if path != STOCK:
            take_amx_path(path)
        return Run(use(folder, **options), **figures)
    except Exception as error:  # whatever vLLM raises is a result
        if os.environ.get("PREPACK_MATRIX_TRACE"):
            traceback.print_exc()
        return Run(error=in_short(error), **figures)


def in_short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # pydantic puts its own heading first.
    if len(lines) > 1 and re.fullmatch(r"\d+ validation errors? for .*", lines[0]):
        lines = lines[1:]
    text = " ".join(lines) if lines else "without a message"
    return f"{type(error).__name__}: {text}"[:600]


def apart(work: Any, seconds: float) -> Any:
    """What `work()` gives, in a child. OpenMP's threads do not survive a fork: the parent must not
    compute anything."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        sender.send(work())
        sender.close()
        os._exit(0)  # threads of the engine need no goodbye

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise TimeoutError(f"no result after {seconds:.0f} s")
        found = receiver.recv()
    finally:
        if process.is_alive():
            process.join(5)
        if process.is_alive():
            process.kill()
    return found


def run_apart(
    folder: Path, path: str, use: Any, options: dict[str, Any], seconds: float = 300
) -> Run:
    """`run_here` in a child. Its end is a result, too."""
    try:
        return apart(lambda: run_here(folder, path, use, options), seconds)
    except EOFError:
        return Run(error="the process ended by itself")
    except TimeoutError as error:
        return Run(error=str(error))
