"""Loads folders packed by prepack into vLLM: the quantization method `prepack`."""

__version__ = "0.1.0"


def register() -> None:
    """Makes the method known to vLLM, which calls this in each process, in some several times."""
    from vllm.model_executor.model_loader import DefaultModelLoader, RunaiModelStreamerLoader

    from prepack_vllm import config  # noqa: F401  registers its class
    from prepack_vllm.hooks import hook_into

    hook_into(DefaultModelLoader)
    hook_into(RunaiModelStreamerLoader)
