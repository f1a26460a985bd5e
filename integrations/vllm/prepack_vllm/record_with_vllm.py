"""Runs prompts with vLLM for prepack_vllm.record."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prepack_vllm.activations import ExpertNames, Recording
from prepack_vllm.errors import CannotRunHere, PrepackError, first_line
from prepack_vllm.layer_names import LayerNames

_EXPERTS = ".routed_experts"


@dataclass(frozen=True)
class _Names:
    """The recorded modules, as LayerNames takes those of a folder."""

    modules: dict[str, str]  # by the names of vLLM's model
    kept: frozenset[str]  # all others
    tensors: Sequence[Any] = ()


def hook_model(model: Any, recording: Recording) -> None:
    """Layers offer their x under the names of the modules that vLLM fused in them."""
    names = LayerNames(_Names({name: name for name in recording.wanted}, recording.others))
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is not None:
        names.map(mapper.get_rename_mapper())  # without what it fuses
    mapping = getattr(model, "packed_modules_mapping", {})
    experts = ExpertNames(recording.wanted)
    for path, layer in model.named_modules():
        if path.endswith(_EXPERTS) and hasattr(layer, "forward_modular"):
            _hook_experts(layer, path.removesuffix(_EXPERTS), experts, recording)
            continue
        modules = [names.modules.get(one) for one in names.of_layer(path, mapping)]
        modules = [one for one in modules if one is not None]
        if modules:
            layer.register_forward_pre_hook(recording.hook(modules), with_kwargs=True)


def _hook_experts(layer: Any, path: str, names: ExpertNames, recording: Recording) -> None:
    """vLLM runs all experts in one op, so there is no x of down_proj."""
    forward = layer.forward_modular

    def forward_modular(*arguments: Any, **named: Any) -> Any:
        x, experts = named["x"], named["topk_ids"]
        for expert in experts.unique().tolist():
            modules = names.of(path, "gate_up", expert)
            if modules:
                recording.offer(modules, x[(experts == expert).any(-1)])
        return forward(*arguments, **named)

    layer.forward_modular = forward_modular


def run(folder: str, prompts: list[list[int]], recording: Recording) -> str:
    # Hooks need the model in this process.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    import vllm

    try:
        model = vllm.LLM(
            folder,
            enforce_eager=True,  # compiled code calls no hooks
            enable_prefix_caching=False,  # every prompt runs through all layers
            max_model_len=max(map(len, prompts)) + 1,
            disable_log_stats=True,
        )
        model.apply_model(lambda one: hook_model(one, recording))
        parameters = vllm.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
        model.generate([{"prompt_token_ids": one} for one in prompts], parameters, use_tqdm=False)
    except PrepackError:
        raise
    # vLLM says with errors of many kinds what it cannot run, of ops that it lacks only here.
    except Exception as error:
        line = first_line(error).rstrip(".")
        raise CannotRunHere(
            folder,
            f"vLLM cannot run the model here: {type(error).__name__}: {line}",
            hint="--runtime transformers runs most checkpoints on any CPU",
        ) from error
    return f"vllm {vllm.__version__}"
