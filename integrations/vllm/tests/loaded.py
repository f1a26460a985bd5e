"""Loads a folder with vLLM's own loader, up to a model that could run, without an engine. For tests only."""

import hashlib
import json
import tempfile

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.distributed.parallel_state import model_parallel_is_initialized
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model
from vllm.plugins import load_general_plugins


def load(folder):
    """(the model, its config without the quantization)."""
    load_general_plugins()
    arguments = EngineArgs(
        str(folder), skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, max_num_seqs=4
    )
    config = arguments.create_engine_config()
    dtype = torch.get_default_dtype()
    with set_current_vllm_config(config):
        if not model_parallel_is_initialized():
            place = tempfile.mkdtemp()
            init_distributed_environment(1, 0, f"file://{place}/store", 0, "gloo")
            initialize_model_parallel(1, 1)
        torch.set_default_dtype(config.model_config.dtype)
        try:
            model = get_model(vllm_config=config)
        finally:
            torch.set_default_dtype(dtype)
    return model, _plain(config.model_config.hf_config.to_dict())


def _plain(config):
    config.pop("quantization_config", None)
    config.pop("_name_or_path", None)
    return json.loads(json.dumps(config, default=str))


def digest(model):
    """Of all that the model computes with: dtype, shape and bytes of every parameter and buffer."""
    found = {}
    for name, tensor in model.state_dict().items():
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        found[name] = (str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(data).hexdigest())
    return found


def in_mapped_files(tensor):
    """Does it lie in a mapping of a safetensors file?"""
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            begin, _, end = line.split()[0].partition("-")
            if int(begin, 16) <= tensor.data_ptr() < int(end, 16):
                return line.rstrip().endswith(".safetensors")
    return False
