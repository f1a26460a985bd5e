"""Runs vLLM's engine on a checkpoint and on folders packed from it, and demands the same tokens and logprobs.

    python check_engine.py [--library LIBRARY]... CHECKPOINT FOLDER...

Runs on an Arm machine, or under qemu-user on any other (docs/arm.md), with vLLM. vLLM packs the checkpoint itself; of a
folder it must pack nothing: none of the packers may be called.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2])]
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_PLUGINS", "")  # the plug-in is registered here, whether it is installed or not

PACKERS = (("aten", "_dyn_quant_pack_4bit_weight"), ("_C", "prepack_moe_weight"), ("_C", "prepack_moe_weight_int8"))


class Count:
    calls = 0


@contextlib.contextmanager
def counted_packers():
    """Counts what the packers are called for. The plug-in calls each for a small module, to see whether the runtime
    still packs as the folder is packed: those do not count."""
    import torch
    from prepack_vllm.probes import K, N

    count = Count()
    packers = {}
    for library, name in PACKERS:
        ops = getattr(torch.ops, library)
        if hasattr(ops, name):
            packers[ops, name] = getattr(ops, name)

    def counting(packer):
        def call(weight, *others):
            count.calls += weight.numel() not in (N * K, N * K // 2)
            return packer(weight, *others)

        return call

    for (ops, name), packer in packers.items():
        setattr(ops, name, counting(packer))
    try:
        yield count
    finally:
        for (ops, name), packer in packers.items():
            setattr(ops, name, packer)


def run(folder):
    import engine

    config = json.loads((folder / "config.json").read_text())
    engine.PROMPTS = [[token % config["vocab_size"] for token in prompt] for prompt in engine.PROMPTS]
    begin = time.monotonic()
    with counted_packers() as count:
        generated = engine.generate(folder, skip_tokenizer_init=True, load_format="auto")
    print(f"{folder.name}: {time.monotonic() - begin:.0f} s, {count.calls} calls of packers", flush=True)
    return generated, count.calls


def stay_in_this_process():
    """vLLM looks at a model's class in a process of its own, and torch compiles with g++: neither can be started under
    qemu-user."""
    import torch._dynamo
    from vllm.model_executor.models import registry

    torch._dynamo.config.disable = True
    registry._run_in_subprocess = lambda function: function()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--library", action="append", default=[])
    arguments.add_argument("checkpoint", type=pathlib.Path)
    arguments.add_argument("folders", nargs="+", type=pathlib.Path)
    options = arguments.parse_args()
    for library in options.library:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import prepack_vllm
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    stay_in_this_process()
    prepack_vllm.register()
    own, calls = run(options.checkpoint)
    assert calls > 0, "vLLM packed nothing of the checkpoint: there is nothing to compare with"
    for folder in options.folders:
        packed, calls = run(folder)
        assert calls == 0, f"{folder}: {calls} weights were packed"
        assert packed == own, f"{folder}: other tokens or logprobs\n{packed}\n{own}"
        print(f"{folder.name}: equal: {packed.tokens}")


if __name__ == "__main__":
    main()
