#!/usr/bin/env python3
"""Times how vLLM starts with a model: from the start of the process to the weights, and to a token.

    build/release/bin/generate_checkpoint /var/tmp/source --embeddings --tokens 8192 \\
        --hidden 2048 --intermediate 768 --experts 128 --layers 12
    build/release/bin/prepack convert /var/tmp/source -o /var/tmp/packed --target vllm-cpu --fuse
    tools/setup_vllm
    PYTHONPATH=integrations/vllm:integrations/vllm/tests/without_zentorch \\
        ~/.cache/prepack/vllm-bench/bin/python bench/vllm_start.py /var/tmp/source /var/tmp/packed

Every run is a process of its own, from `python` on; folders take turns, and their files are read
once before. Memory is what no file is behind (RssAnon). A CPU without AMX: vLLM does not take its
ops for experts there by itself, although they run; it is made to.

Exit codes: 0 measured; 2 usage; 6 vLLM cannot run it here, and nothing was measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from vllm_load import NOT_RUN, parse
from vllm_repack import anonymous_bytes

PROMPT = list(range(1, 9))


def take_ops_for_experts():
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe

    for name in ("CPUExpertsInt4", "CPUExpertsInt8", "CPUExpertsFp8", "CPUExpertsMxfp4"):
        getattr(cpu_moe, name)._supports_current_device = staticmethod(lambda: True)


def run(folder, begin):
    """One run, in this process, which began at `begin`."""
    from vllm import LLM, SamplingParams
    from vllm.model_executor.model_loader import base_loader

    try:
        import prepack_vllm

        prepack_vllm.register()  # where it is installed, vLLM does that
    except ImportError:
        pass
    take_ops_for_experts()
    figures = {"imported": time.time() - begin, "import_bytes": anonymous_bytes()}
    load = base_loader.BaseModelLoader.load_model

    def load_model(*positional, **named):
        start = time.time()
        model = load(*positional, **named)
        figures["loading"] = time.time() - start
        figures["loaded"] = time.time() - begin
        figures["loaded_bytes"] = anonymous_bytes() - figures["import_bytes"]
        return model

    base_loader.BaseModelLoader.load_model = load_model
    engine = LLM(
        str(folder), skip_tokenizer_init=True, enforce_eager=True, max_model_len=64, max_num_seqs=1,
        disable_log_stats=True,
    )  # fmt: skip
    sampling = SamplingParams(temperature=0, max_tokens=1, detokenize=False)
    engine.generate({"prompt_token_ids": PROMPT}, sampling, use_tqdm=False)
    figures["token"] = time.time() - begin
    return figures


def start(folder):
    environment = os.environ | {
        "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    command = [sys.executable, __file__, "--begin", str(time.time()), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"not run: {folder}: {done.stderr[-2000:]}", file=sys.stderr)
        sys.exit(NOT_RUN)
    return json.loads(done.stdout.splitlines()[-1])


def warm(folder):
    for path in folder.glob("*.safetensors"):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def add_begin(parser):
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)


def main():
    arguments = parse(__doc__, add_begin)
    if arguments.begin is not None:
        print(json.dumps(run(arguments.folders[0], arguments.begin)))
        return 0
    runs = {folder: [] for folder in arguments.folders}
    for _ in range(arguments.runs):
        for folder in arguments.folders:
            warm(folder)
            runs[folder].append(start(folder))
    for folder, own in runs.items():
        middle = {key: statistics.median(one[key] for one in own) for key in own[0]}
        print(
            f"{folder}, median of {len(own)}: imports {middle['imported']:.1f} s, loading "
            f"{middle['loading']:.2f} s ({min(one['loading'] for one in own):.2f} to "
            f"{max(one['loading'] for one in own):.2f}), weights loaded after "
            f"{middle['loaded']:.1f} s with {middle['loaded_bytes'] / 2**20:.0f} MiB, first token "
            f"after {middle['token']:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
