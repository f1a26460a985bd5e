"""What else people serve with: source against packed folder, each with the same options.

    features.py --scratch FOLDER --results RESULTS.jsonl [FEATURE…]

A use is given a folder and gives what is compared. It runs in a process of its own.
"""

import argparse
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matrix import SECONDS, Folders, preload, verdicts, vllm_version
from one_run import Run, apart, run_apart

_EAGER: dict[str, Any] = {"enforce_eager": True}


@dataclass(frozen=True)
class Feature:
    """`recipe` and `form`: the model. `adapt` changes the source before it is packed."""

    words: str
    use: Callable[[Path], Any]
    recipe: str = "llama3"
    form: str = "ct"
    adapt: Callable[[Path], None] = lambda folder: None
    place: Callable[[Path], Path] = lambda folder: folder  # where the folder is served from


@dataclass(frozen=True)
class FeatureRow:
    feature: str
    form: str
    vllm: str
    errors: dict[str, str]
    packed: dict[str, str]
    fused: dict[str, str]


def generate_with(**options: Any) -> Callable[[Path], Any]:
    def use(folder: Path) -> Any:
        from engine import generate

        return generate(folder, **_EAGER, **options)

    return use


def with_draft(folder: Path) -> Any:
    """The model proposes for itself: every proposal comes from packed weights, too."""
    speculation = {"model": str(folder), "method": "draft_model", "num_speculative_tokens": 2}
    return generate_with(speculative_config=speculation)(folder)


_RANK = 8


def write_adapter(folder: Path) -> Path:
    """LoRA for all linear layers, as PEFT stores it."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(11)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = (config[f"num_{kind}_heads"] * head for kind in ("attention", "key_value"))
    shapes = {
        "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }  # fmt: skip
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (n, k) in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(_RANK, k) / k**0.5
            tensors[f"{stem}.lora_B.weight"] = torch.randn(n, _RANK) / _RANK**0.5
    out = folder.parent / f"{folder.name}-adapter"
    out.mkdir(exist_ok=True)
    save_file(tensors, out / "adapter_model.safetensors")
    targets = sorted({name.split(".")[1] for name in shapes})
    adapter = {"peft_type": "LORA", "r": _RANK, "lora_alpha": _RANK, "target_modules": targets,
               "bias": "none", "task_type": "CAUSAL_LM"}  # fmt: skip
    (out / "adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")
    return out


def with_adapter(folder: Path) -> Any:
    """With an adapter and without it, from one engine: they must differ."""
    from engine import PROMPTS, SIZES
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    request = LoRARequest("one", 1, str(write_adapter(folder)))
    llm = LLM(str(folder), enable_lora=True, max_lora_rank=_RANK, seed=0, **_EAGER, **SIZES)
    sampling = SamplingParams(temperature=0, max_tokens=12, logprobs=1, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    found = []
    for adapter in (request, None):
        outputs = llm.generate(prompts, sampling, lora_request=adapter, use_tqdm=False)
        found.append([_with_logprobs(output.outputs[0]) for output in outputs])
    assert found[0] != found[1], "the adapter changes nothing"
    return found


def _with_logprobs(output: Any) -> list[tuple[int, float]]:
    pairs = zip(output.token_ids, output.logprobs, strict=True)
    return [(token, entry[token].logprob) for token, entry in pairs]


def _pooled(folder: Path, method: str) -> Any:
    from engine import PROMPTS, SIZES
    from vllm import LLM

    llm = LLM(str(folder), runner="pooling", seed=0, **_EAGER, **SIZES)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    outputs = getattr(llm, method)(prompts, use_tqdm=False)
    return [getattr(output.outputs, "embedding" if method == "embed" else "probs")
            for output in outputs]  # fmt: skip


def embed(folder: Path) -> Any:
    return _pooled(folder, "embed")


def classify(folder: Path) -> Any:
    return _pooled(folder, "classify")


def give_scores(folder: Path) -> None:
    """A reranker: the model with a head of scores."""
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["architectures"] = ["LlamaForSequenceClassification"]
    config["id2label"] = {"0": "no", "1": "yes"}
    config["label2id"] = {"no": 0, "yes": 1}
    config["quantization_config"]["ignore"].append("score")
    path.write_text(json.dumps(config), encoding="utf-8")
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    tensors.pop("lm_head.weight", None)
    torch.manual_seed(3)
    tensors["score.weight"] = (torch.randn(2, config["hidden_size"]) / 32).bfloat16()
    save_file(tensors, weights, metadata={"format": "pt"})


def in_hub_cache(folder: Path) -> Path:
    """As the hub's client keeps models: files are links to blobs, and nothing can be written."""
    cache = folder.parent / f"models--org--{folder.name}"
    _writable(cache)
    shutil.rmtree(cache, ignore_errors=True)
    blobs, snapshot = cache / "blobs", cache / "snapshots" / ("0" * 40)
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = blobs / f"{number:040x}"
        shutil.copy(file, blob)
        blob.chmod(stat.S_IRUSR)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    for one in (blobs, snapshot):
        one.chmod(stat.S_IRUSR | stat.S_IXUSR)
    return snapshot


def _writable(cache: Path) -> None:
    for one in (cache / "blobs", cache / "snapshots" / ("0" * 40)):
        if one.exists():
            one.chmod(stat.S_IRWXU)


def one_after_another(folder: Path) -> Any:
    """The model, the same weights with another epsilon, and the model again."""
    from engine import generate

    first = generate(folder, **_EAGER)
    other = generate(folder, **_EAGER, hf_overrides={"rms_norm_eps": 1e-2})
    again = generate(folder, **_EAGER)
    assert first == again and first != other
    return first, other


FEATURES = {
    "ngram": Feature(
        "speculative decoding, n-grams of the prompt",
        generate_with(speculative_config={
            "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }),
    ),
    "draft": Feature("speculative decoding, a draft model", with_draft),
    "lora": Feature("LoRA on all linear layers", with_adapter),
    "embed": Feature("embeddings (`--runner pooling`)", embed, "qwen3_tied"),
    "rerank": Feature("a reranker (`--runner pooling`)", classify, adapt=give_scores),
    "cache": Feature("a read-only hub cache with symbolic links", generate_with(),
                     place=in_hub_cache),
    "turns": Feature("three engines one after another in one process", one_after_another),
    "prefix": Feature("prefix caching and chunked prefill",
                      generate_with(enable_prefix_caching=True, max_num_batched_tokens=8)),
}  # fmt: skip


def run_feature(root: Path, key: str) -> FeatureRow:
    feature = FEATURES[key]
    folders = Folders(root, feature.recipe, feature.form, "vllm-cpu")
    apart(lambda: feature.adapt(folders.source), SECONDS)
    runs = {
        name: _run(feature, folder)
        for name, folder in (
            ("stock", folders.source),
            ("packed", folders.packed("packed")),
            ("fused", folders.packed("fused", "--fuse")),
        )
    }
    stock = {"stock": runs["stock"]}
    errors = {"stock": runs["stock"].error} if runs["stock"].error else {}
    return FeatureRow(
        key, feature.form, vllm_version(), errors, verdicts(runs["packed"], stock),
        verdicts(runs["fused"], stock | {"packed": runs["packed"]}),
    )  # fmt: skip


def _run(feature: Feature, folder: Path | str) -> Run:
    if isinstance(folder, str):
        return Run(error=f"prepack: {folder}")
    return run_apart(feature.place(folder), False, feature.use, {}, SECONDS)


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
