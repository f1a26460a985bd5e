#!/usr/bin/env python3
"""Times how vLLM starts with a model: from the start of the process to the weights, and to a token.

    build/release/bin/generate_checkpoint /var/tmp/source --embeddings --tokens 8192 \\
        --hidden 2048 --intermediate 768 --experts 128 --layers 12
    build/release/bin/prepack convert /var/tmp/source -o /var/tmp/packed --target vllm-cpu --fuse
    tools/setup_vllm
    PYTHONPATH=integrations/vllm:integrations/vllm/tests/without_zentorch \\
        ~/.cache/prepack/vllm-bench/bin/python bench/vllm_start.py /var/tmp/source /var/tmp/packed

Every run is a process of its own, from `python` on; folders take turns, and their files are read
once before, or dropped from the cache (--cold). Memory is what no file is behind (RssAnon). With
--servers N, so many processes hold the model at once, one started after another, and of each its
share of the memory is read when all have answered (Pss of smaps_rollup). A CPU without AMX: vLLM does
not take its ops for experts there by itself, although they run; it is made to.

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
        start, cpu_start = time.time(), time.process_time()
        model = load(*positional, **named)
        figures["loading"] = time.time() - start
        figures["loading_cpu"] = time.process_time() - cpu_start
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
    figures["token_cpu"] = time.process_time()
    print(json.dumps(figures), flush=True)
    sys.stdin.read()  # holds the model


def begin(folder):
    environment = os.environ | {
        "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    command = [sys.executable, __file__, "--begin", str(time.time()), str(folder)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def figures_of(server, folder):
    """What it prints when it has answered. It holds the model until its input ends."""
    for line in server.stdout:
        if line.startswith("{"):
            return json.loads(line)
    print(f"not run: {folder}: {server.communicate()[1][-2000:]}", file=sys.stderr)
    sys.exit(NOT_RUN)


def share_of(server):
    """Bytes of the process's memory, of pages that it shares its part."""
    with open(f"/proc/{server.pid}/smaps_rollup", encoding="ascii") as lines:
        found = {line.split(":")[0]: int(line.split()[1]) for line in lines if " kB" in line}
    return {"pss_bytes": found["Pss"] << 10, "pss_anon_bytes": found["Pss_Anon"] << 10}


def start(folder, count):
    """`count` servers of the folder, the figures of the first and the mean of the shares."""
    servers, all_figures = [], []
    for _ in range(count):
        servers.append(begin(folder))
        all_figures.append(figures_of(servers[-1], folder))
    shares = [share_of(server) for server in servers]
    for server in servers:
        server.communicate()
    mean = {key: statistics.mean(one[key] for one in shares) for key in shares[0]}
    return all_figures[0] | mean


def warm(folder, cold):
    for path in folder.glob("*.safetensors"):
        with open(path, "rb", buffering=0) as file:
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                continue
            while file.read(1 << 24):
                pass


def add_options(parser):
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help="drop the files from the cache before")
    parser.add_argument("--servers", type=int, default=1, help="so many hold the model at once")


def main():
    arguments = parse(__doc__, add_options)
    if arguments.begin is not None:
        run(arguments.folders[0], arguments.begin)
        return 0
    runs = {folder: [] for folder in arguments.folders}
    for _ in range(arguments.runs):
        for folder in arguments.folders:
            warm(folder, arguments.cold)
            runs[folder].append(start(folder, arguments.servers))
    for folder, own in runs.items():
        middle = {key: statistics.median(one[key] for one in own) for key in own[0]}
        print(
            f"{folder}, median of {len(own)}: imports {middle['imported']:.1f} s, loading "
            f"{middle['loading']:.2f} s ({min(one['loading'] for one in own):.2f} to "
            f"{max(one['loading'] for one in own):.2f}, {middle['loading_cpu']:.2f} s of CPU), "
            "weights loaded after "
            f"{middle['loaded']:.1f} s with {middle['loaded_bytes'] / 2**20:.0f} MiB, first token "
            f"after {middle['token']:.1f} s ({middle['token_cpu']:.1f} s of CPU); then of "
            f"{arguments.servers} each {middle['pss_bytes'] / 2**20:.0f} MiB, of these {middle['pss_anon_bytes'] / 2**20:.0f} "
            "MiB anonymous"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
