"""Runs the real op of every packed module on seeded inputs, against f64 from its parts.

    python -m prepack_vllm.check FOLDER

Exit codes: 0 good; 1 a module is below its bar, or damaged; 2 usage; 3 the folder is malformed;
4 the system failed; 5 not supported; 6 this machine cannot run it, or there was nothing to run:
never a pass.
"""

import argparse
import json
import math
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from prepack_vllm.bound_kernel import bind, read_parts
from prepack_vllm.checks import check_folder
from prepack_vllm.errors import CannotRunHere, PrepackError, run_command
from prepack_vllm.geometry import Geometry, geometry_of
from prepack_vllm.integrity import is_damaged
from prepack_vllm.kernels import forget_weights
from prepack_vllm.layouts import TORCH_DTYPES, layout_of
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.reference import product

_SEED = 20240914
_ROWS = 8  # more than 4, where fp8 kernels change their way, and no power-of-two tile of many
# As `prepack verify` has them, for Gaussian inputs.
_MIN_DB = 40.0
_MIN_DB_INT8_ACTIVATIONS = 35.0
_CUT_FRACTIONS_DB = 6.0  # what it costs to cut them off


@dataclass(frozen=True)
class Result:
    module: str
    layout: str
    op: str
    sqnr_db: float | None  # None: the outputs are all zeros, which proves nothing
    worst_channel: int
    worst_channel_db: float | None
    min_db: float
    damaged_part: str | None  # whose bytes are not those that were packed

    @property
    def verdict(self) -> str:
        if self.damaged_part is not None:
            return f"FAILED: {self.damaged_part} is damaged"
        if self.sqnr_db is None:
            return "not run: zeros"
        return "passed" if self.sqnr_db >= self.min_db else "FAILED"


def _inputs(geometry: Geometry, parts: dict[str, torch.Tensor]) -> torch.Tensor:
    random = np.random.Generator(np.random.PCG64(_SEED))
    x = random.standard_normal((_ROWS, geometry.k))
    if "input_scale" in parts:  # static: what fits into its range, without being cut off
        zero = float(parts["input_zero_point"]) if "input_zero_point" in parts else 0.0
        x = (np.clip(x * 32 + zero, -127, 127) - zero) * float(parts["input_scale"])
    return torch.from_numpy(x).to(TORCH_DTYPES[geometry.activation_dtype])


def _db(signal: float, noise: float) -> float | None:
    """None where there is no signal, or where the noise is no number."""
    if signal == 0 or not math.isfinite(noise):
        return None if signal == 0 else -math.inf
    return math.inf if noise == 0 else 10 * math.log10(signal / noise)


def _damaged_part(module: PackedModule, parts: dict[str, torch.Tensor]) -> str | None:
    for name, tensor in parts.items():
        if is_damaged(module.parts[name], tensor):
            return name
    return None


def check_module(manifest: Manifest, module: PackedModule) -> Result:
    """Of stacked experts, what is said of the worst of them; channels count through the stack."""
    geometry = geometry_of(module, manifest.activation_dtype)
    parts = read_parts(manifest, module)
    damaged = _damaged_part(module, parts)
    experts = [parts]
    if module.experts:
        experts = [
            {name: one[expert] for name, one in parts.items()} for expert in range(module.experts)
        ]
    products = [
        _check_product(module, geometry, one, number * geometry.n)
        for number, one in enumerate(experts)
    ]
    # Where there is no signal there is nothing to compare.
    level, worst, worst_level = min(
        products, key=lambda one: math.inf if one[0] is None else one[0]
    )
    kernel = layout_of(module).kernel
    least = _MIN_DB if module.activations is None else _MIN_DB_INT8_ACTIVATIONS
    if kernel.cuts_fractions:
        least -= _CUT_FRACTIONS_DB
    return Result(
        module.name,
        module.layout,
        kernel.ops[-1] if kernel.ops else "aten::linear",
        level,
        worst,
        worst_level,
        least,
        damaged,
    )


def _check_product(
    module: PackedModule, geometry: Geometry, parts: dict[str, torch.Tensor], first_channel: int
) -> tuple[float | None, int, float | None]:
    """dB of all outputs; the worst channel, and its dB."""
    x = _inputs(geometry, parts)
    expected = product(module.layout, geometry, parts, x)
    try:
        actual = bind(module, geometry, parts)(x).double().numpy()
    except RuntimeError as error:
        raise PrepackError(
            module.name,
            f"the op of {module.layout} failed: {str(error).splitlines()[0]}",
            hint="vLLM would fail at the first token. Look whether this plugin was tested with the "
            "installed vLLM (its README.md), and report it",
        ) from error
    forget_weights()  # the next module's may get the address of these
    signal = (expected**2).sum(0)
    noise = ((actual - expected) ** 2).sum(0)
    channels = [_db(float(s), float(e)) for s, e in zip(signal, noise, strict=True)]
    # A channel without a signal is bad only where something comes out all the same.
    levels = [
        (math.inf if noise[n] == 0 else -math.inf) if level is None else level
        for n, level in enumerate(channels)
    ]
    worst = int(np.argmin(levels))
    return _db(float(signal.sum()), float(noise.sum())), first_channel + worst, channels[worst]


def _cell(level: float | None) -> str:
    return "-" if level is None else f"{level:.1f}"


def _print_table(results: list[Result]) -> None:
    rows = [("module", "layout", "dB", "at least", "worst channel", "op", "")]
    for one in results:
        channel = f"n {one.worst_channel}: {_cell(one.worst_channel_db)}"
        rows.append(
            (
                one.module,
                one.layout,
                _cell(one.sqnr_db),
                _cell(one.min_db),
                channel,
                one.op,
                one.verdict,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _finite(value: object) -> object:
    """JSON has no infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else "-inf"
    return value


def _print_json(folder: Path, results: list[Result], verdict: str) -> None:
    modules = [
        {name: _finite(value) for name, value in asdict(one).items()} | {"verdict": one.verdict}
        for one in results
    ]
    print(json.dumps({"folder": str(folder), "modules": modules, "result": verdict}, indent=2))


def run(folder: Path, as_json: bool) -> int:
    manifest = check_folder(folder)
    results = [check_module(manifest, module) for module in manifest.modules.values()]
    if not results:
        raise CannotRunHere(str(folder), "the folder has no packed module to run")
    if any(one.verdict.startswith("FAILED") for one in results):
        code, verdict = 1, "failed"
    elif any(one.verdict != "passed" for one in results):
        code, verdict = CannotRunHere.exit_code, "not run"
    else:
        code, verdict = 0, "passed"
    if as_json:
        _print_json(folder, results, verdict)
    else:
        _print_table(results)
        passed = sum(one.verdict == "passed" for one in results)
        print(f"\n{verdict}: {passed} of {len(results)} modules")
    return code


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m prepack_vllm.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="a packed folder")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    return run_command(lambda: run(options.folder, options.json))


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.exit(main())
