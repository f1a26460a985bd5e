"""What else people serve with: source against packed folder, each with the same options.

    features.py --scratch FOLDER --results RESULTS.jsonl [FEATURE…]

What is done with the folders is in uses.py. It runs in a process of its own.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uses
from matrix import SECONDS, Folders, preload, same, verdicts, vllm_version
from one_run import AMX, STOCK, Run, apart, run_apart


@dataclass(frozen=True)
class Feature:
    """`recipes` and `form`: the models, of MODELS, whose folders `use` is given. `adapt` change a
    source before it is packed."""

    words: str
    use: Callable[..., Any]
    recipes: tuple[str, ...] = ("llama3",)
    form: str = "ct"
    adapt: tuple[Callable[[Path], None], ...] = ()
    place: Callable[[Path], Path] = lambda folder: folder  # where the folder is served from
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class FeatureRow:
    feature: str
    form: str
    vllm: str
    errors: dict[str, str]
    packed: dict[str, str]
    fused: dict[str, str]


FEATURES = {
    "ngram": Feature("speculative decoding, n-grams of the prompt", uses.with_ngrams),
    "draft": Feature("speculative decoding, a draft model", uses.with_draft),
    "mtp": Feature("speculative decoding, a head of the model (MTP, Qwen3.5)", uses.with_mtp,
                   ("qwen3_5",), adapt=(uses.give_eyes, uses.give_prediction)),
    "mtp_experts": Feature("speculative decoding, a head with experts (MTP, DeepSeek V3)",
                           uses.with_mtp, ("deepseek_v3_mtp",)),
    "eagle": Feature("speculative decoding, an EAGLE head in bf16", uses.with_eagle),
    "lora": Feature("LoRA on all linear layers", uses.with_adapter),
    "embed": Feature("embeddings (`--runner pooling`)", uses.embed, ("qwen3_tied",)),
    "rerank": Feature("a reranker (`--runner pooling`)", uses.classify, adapt=(uses.give_scores,)),
    "pictures": Feature("pictures (Qwen3.5)", uses.look, ("qwen3_5",), adapt=(uses.give_eyes,)),
    "ranks": Feature("two ranks (`--tensor-parallel-size 2`)",
                     uses.generate_with(tensor_parallel_size=2),
                     environment=(("VLLM_CPU_OMP_THREADS_BIND", "nobind"),)),
    "cache": Feature("a read-only hub cache with symbolic links", uses.generate_with(),
                     place=uses.in_hub_cache),
    "serve": Feature("`vllm serve` over HTTP, two models one after the other", uses.serve,
                     ("llama3", "qwen3")),
    "turns": Feature("three engines one after another in one process", uses.one_after_another),
    "prefix": Feature("prefix caching and chunked prefill",
                      uses.generate_with(enable_prefix_caching=True, max_num_batched_tokens=8)),
}  # fmt: skip


def run_feature(root: Path, key: str) -> FeatureRow:
    feature = FEATURES[key]
    models = [
        Folders(root / recipe, recipe, feature.form, "vllm-cpu") for recipe in feature.recipes
    ]
    for model in models:
        for adapt in feature.adapt:
            apart(lambda change=adapt, source=model.source: change(source), SECONDS)

    def run(folders: list[Path | str], path: str = STOCK) -> Run:
        for folder in folders:
            if isinstance(folder, str):
                return Run(error=f"prepack: {folder}")
        return _run(feature, folders, path)

    sources = [model.source for model in models]
    references = {STOCK: run(sources)}
    packed = run([model.packed("packed") for model in models])
    fused = run([model.packed("fused", "--fuse") for model in models])
    if not same(packed, references[STOCK]):
        references[AMX] = run(sources, AMX)
    return FeatureRow(
        key, feature.form, vllm_version(),
        {name: one.error for name, one in references.items() if one.error},
        verdicts(packed, references), verdicts(fused, references | {"packed": packed}),
    )  # fmt: skip


def _run(feature: Feature, folders: list[Path], path: str) -> Run:
    def use(_: Path) -> Any:
        os.environ.update(feature.environment)
        return feature.use(*map(feature.place, folders))

    return run_apart(folders[0], path, use, {}, SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="*", metavar="FEATURE", help=", ".join(FEATURES))
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    if unknown := set(arguments.features) - set(FEATURES):
        parser.error(f"no such feature: {', '.join(sorted(unknown))}")
    preload()
    for key in arguments.features or FEATURES:
        row = run_feature(arguments.scratch, key)
        with arguments.results.open("a", encoding="utf-8") as results:
            results.write(json.dumps(asdict(row)) + "\n")
        print("row:", key, row.errors, row.packed, row.fused, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
