"""Runs prompts with Transformers for prepack_vllm.record."""

from typing import Any

from prepack_vllm.activations import ExpertNames, Recording
from prepack_vllm.errors import CannotRunHere, Malformed, first_line

# Parameters that hold a projection of all experts of a layer, [E, N, K].
_STACKS = {"gate_up_proj": "gate_up", "down_proj": "down"}


def hook_modules(model: Any, recording: Recording) -> None:
    """Every module of a wanted name offers its x."""
    for name, module in model.named_modules():
        if name in recording.wanted:
            module.register_forward_pre_hook(recording.hook([name]), with_kwargs=True)


def stacked_weights(model: Any, names: ExpertNames) -> dict[int, list[str]]:
    """Where the weight of an expert begins in memory → the modules that it is."""
    found = {}
    for path, module in model.named_modules():
        for parameter, what in _STACKS.items():
            stack = getattr(module, parameter, None)
            if getattr(stack, "ndim", 0) != 3:
                continue
            for expert, weight in enumerate(stack):
                modules = names.of(path, what, expert)
                if modules:
                    found[weight.data_ptr()] = modules
    return found


def _watch_experts(model: Any, recording: Recording) -> Any:
    """Transformers multiplies experts one by one with slices of a stack, outside of any module."""
    import torch
    from torch.overrides import TorchFunctionMode

    weights = stacked_weights(model, ExpertNames(recording.wanted))

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), named=None):
            if function is torch.nn.functional.linear and len(arguments) > 1:
                modules = weights.get(arguments[1].data_ptr())
                if modules is not None:
                    recording.offer(modules, arguments[0])
            return function(*arguments, **(named or {}))

    return Watch()


def _load(folder: str) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", experts_implementation="eager", output_loading_info=True
        )
    except (ImportError, RuntimeError, ValueError) as error:
        raise CannotRunHere(
            folder,
            f"Transformers cannot load the checkpoint: {first_line(error).rstrip('.')}",
            hint="Record from the unquantized model, with --for CHECKPOINT",
        ) from error
    # Transformers gives random numbers to weights that it does not find.
    if missing := sorted(info["missing_keys"]):
        raise Malformed(
            folder,
            "Transformers does not find weights of the model in the checkpoint",
            found=f"{len(missing)} missing, {missing[0]} first",
            hint="Record from the unquantized model, with --for CHECKPOINT",
        )
    return model.eval()


def run(folder: str, prompts: list[list[int]], recording: Recording) -> str:
    import torch
    import transformers

    model = _load(folder)
    hook_modules(model, recording)
    with torch.inference_mode(), _watch_experts(model, recording):
        for prompt in prompts:
            model(torch.tensor([prompt]), use_cache=False)
    return f"transformers {transformers.__version__}"
