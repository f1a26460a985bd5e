"""What features.py does with a folder, or with a source before it is packed. A use gives what is
compared."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EAGER: dict[str, Any] = {"enforce_eager": True}


def generate_with(**options: Any) -> Callable[[Path], Any]:
    def use(folder: Path) -> Any:
        from engine import generate

        return generate(folder, **_EAGER, **options)

    return use


def _speculate(folder: Path, **speculation: Any) -> Any:
    """Tokens do not depend on what is proposed: the proposals are given, too."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    proposals = []
    propose = GPUModelRunner.propose_draft_token_ids

    def propose_draft_token_ids(self: Any, *positional: Any, **named: Any) -> Any:
        found = propose(self, *positional, **named)
        proposals.append(found if isinstance(found, list) else found.tolist())
        return found

    GPUModelRunner.propose_draft_token_ids = propose_draft_token_ids
    speculation.setdefault("num_speculative_tokens", 2)
    # vLLM moves the states of delta nets with Triton, which CPUs lack, where it caches prefixes.
    run = generate_with(speculative_config=speculation, enable_prefix_caching=False)
    generated = run(folder)
    assert any(proposals), "nothing was proposed"
    return generated, proposals


def with_ngrams(folder: Path) -> Any:
    return _speculate(folder, method="ngram", prompt_lookup_max=3, prompt_lookup_min=1)


def with_draft(folder: Path) -> Any:
    """The model proposes for itself: every proposal comes from packed weights, too."""
    return _speculate(folder, method="draft_model", model=str(folder))


def with_mtp(folder: Path) -> Any:
    return _speculate(folder, method="mtp", num_speculative_tokens=1)


def give_prediction(folder: Path) -> None:
    """The layer that Qwen3.5 predicts further tokens with: as its last, which is of that kind."""
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    text = config["text_config"]
    text["mtp_num_hidden_layers"] = 1
    config["quantization_config"]["ignore"].append("mtp.fc")
    path.write_text(json.dumps(config), encoding="utf-8")
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    last, hidden = f".layers.{text['num_hidden_layers'] - 1}.", text["hidden_size"]
    for name in [name for name in tensors if last in name]:
        tensors[f"mtp.layers.0.{name.split(last)[1]}"] = tensors[name].clone()
    torch.manual_seed(5)
    tensors["mtp.fc.weight"] = (torch.randn(hidden, 2 * hidden) / hidden**0.5).bfloat16()
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{norm}.weight"] = torch.zeros(hidden, dtype=torch.bfloat16)
    save_file(tensors, weights, metadata={"format": "pt"})


def with_eagle(folder: Path) -> Any:
    return _speculate(folder, method="eagle", model=str(write_eagle(folder)))


def write_eagle(folder: Path) -> Path:
    """One decoder layer without its first norm, not quantized, as such heads are published."""
    import torch
    import transformers
    from safetensors.torch import save_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    own = {key: value for key, value in config.items() if key != "quantization_config"}
    own["num_hidden_layers"] = 1
    torch.manual_seed(13)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**own))
    tensors = {
        name.removeprefix("model."): tensor.bfloat16().contiguous()
        for name, tensor in model.state_dict().items()
        if ".layers." in name and ".input_layernorm." not in name
    }
    hidden = own["hidden_size"]
    tensors["fc.weight"] = (torch.randn(hidden, 2 * hidden) / hidden**0.5).bfloat16()
    out = folder.parent / f"{folder.name}-eagle"
    out.mkdir(exist_ok=True)
    (out / "config.json").write_text(json.dumps(own), encoding="utf-8")
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def look(folder: Path) -> Any:
    """Two pictures in the same words: the answers must differ."""
    from engine import generate
    from inputs import picture

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    begin, image, end = (
        config[f"{one}_token_id"] for one in ("vision_start", "image", "vision_end")
    )
    prompts = [
        {
            "prompt_token_ids": [5, begin, image, end, 17, 33],
            "multi_modal_data": {"image": picture(width, 64)},
        }
        for width in (96, 128)
    ]
    generated = generate(
        folder, prompts=prompts, max_model_len=128, limit_mm_per_prompt={"image": 1, "video": 0},
        **_EAGER,
    )  # fmt: skip
    assert generated.tokens[0] != generated.tokens[1], "the pictures change nothing"
    return generated


def give_eyes(folder: Path) -> None:
    """What Qwen3.5's processor wants besides the model: its settings, and words for pictures."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start",
             "vision_end": "vision_end"}  # fmt: skip
    for key, name in names.items():
        number = config[f"{key}_token_id"]
        del words[f"w{number}"]
        words[f"<|{name}|>"] = number
        tokenizer["added_tokens"].append(
            {"id": number, "content": f"<|{name}|>", "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
        )  # fmt: skip
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    settings = {
        "processor_class": "Qwen3VLProcessor", "patch_size": config["vision_config"]["patch_size"],
        "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "size": {"shortest_edge": 1024, "longest_edge": 65536},
    }  # fmt: skip
    kinds = {"": ("image_processor_type", "Qwen2VLImageProcessorFast"),
             "video_": ("video_processor_type", "Qwen3VLVideoProcessor")}  # fmt: skip
    for prefix, (key, name) in kinds.items():
        text = json.dumps(settings | {key: name})
        (folder / f"{prefix}preprocessor_config.json").write_text(text, encoding="utf-8")


def serve(*folders: Path) -> Any:
    """What each of them answers over HTTP, the server of the one before having ended."""
    from engine import PROMPTS
    from serving import complete, served

    answers = []
    for folder in folders:
        with served(folder, folder.parent / f"{folder.name}.log") as url:
            answers.append([complete(url, folder, prompt) for prompt in PROMPTS])
    assert answers[0] != answers[1]
    return answers


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
