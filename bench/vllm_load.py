#!/usr/bin/env python3
"""Times how vLLM loads a model: a quantized checkpoint, which it repacks, or a packed folder.

    build/release/bin/generate_checkpoint /var/tmp/source --format ct-w4a16 --layers 6
    build/release/bin/prepack convert /var/tmp/source -o /var/tmp/packed --target vllm-cpu
    tools/setup_vllm
    PYTHONPATH=integrations/vllm ~/.cache/prepack/vllm-bench/bin/python \\
        bench/vllm_load.py /var/tmp/source /var/tmp/packed

vLLM's own loader does the work, up to a model that could run; nothing is computed, so the CPU may
lack the op. Folders take turns; every run is a process of its own. The vocabulary is made small:
embeddings and head are the same in both.

Exit codes: 0 measured; 2 usage; 6 vLLM cannot load it here, and nothing was measured.
"""

import argparse
import multiprocessing
import os
import pathlib
import statistics
import sys
import time
import traceback
from dataclasses import dataclass

from vllm_repack import PeakMemory, anonymous_bytes

NOT_RUN = 6
VOCABULARY = 1024


@dataclass
class Run:
    total_seconds: float
    total_cpu_seconds: float  # of all threads
    process_seconds: float  # of that, after the weights have been read
    process_cpu_seconds: float
    check_seconds: float  # in front of it: the plugin's checks
    peak_bytes: int  # anonymous memory, above what vLLM takes without a model
    end_bytes: int


def measure(folder):
    """One run, in this process."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import base_loader, get_model
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    try:
        import prepack_vllm
        from prepack_vllm import platform

        prepack_vllm.register()
        # Nothing is computed, so it does not matter that the op is missing.
        platform.has_op = lambda name: True
    except ImportError:
        pass
    arguments = EngineArgs(
        str(folder),
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        hf_overrides={"vocab_size": VOCABULARY},
    )
    begin = time.perf_counter()
    config = arguments.create_engine_config()
    check_seconds = time.perf_counter() - begin
    processed = base_loader.process_weights_after_loading
    seconds = []

    def process(*positional, **named):
        start, cpu_start = time.perf_counter(), time.process_time()
        processed(*positional, **named)
        seconds.append((time.perf_counter() - start, time.process_time() - cpu_start))

    base_loader.process_weights_after_loading = process
    with set_current_vllm_config(config):
        torch.set_default_dtype(config.model_config.dtype)
        init_distributed_environment(1, 0, f"file:///tmp/vllm_load.{os.getpid()}", 0, "gloo")
        initialize_model_parallel(1, 1)
        memory = PeakMemory()
        memory.start()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        model = get_model(vllm_config=config)
        total, cpu_total = time.perf_counter() - begin, time.process_time() - cpu_begin
        end_bytes = anonymous_bytes() - memory.start_bytes
        peak = memory.stop()
    assert model is not None
    ((process_seconds, process_cpu),) = seconds
    return Run(total, cpu_total, process_seconds, process_cpu, check_seconds, peak, end_bytes)


def measure_in_child(folder):
    """A Run, or a text that says why there is none: exceptions of other libraries do not travel."""
    try:
        return measure(folder)
    except Exception:  # whatever vLLM raises
        return traceback.format_exc()


def parse(description, add=lambda parser: None):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=3)
    add(parser)
    arguments = parser.parse_args()
    for folder in arguments.folders:
        if not (folder / "config.json").is_file():
            parser.error(f"{folder} is no checkpoint folder")
    if arguments.runs < 1:
        parser.error("--runs is at least 1")
    return arguments


def main():
    arguments = parse(__doc__)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    jobs = arguments.folders * arguments.runs
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        runs = pool.map(measure_in_child, jobs, chunksize=1)
    failed = [run for run in runs if isinstance(run, str)]
    if failed:
        print(f"not run: {failed[0]}", file=sys.stderr)
        return NOT_RUN
    for index, folder in enumerate(arguments.folders):
        own = runs[index :: len(arguments.folders)]

        def median(value, own=own):
            return statistics.median(value(run) for run in own)

        totals = sorted(run.total_seconds for run in own)
        print(
            f"{folder}, median of {arguments.runs}: "
            f"loaded in {median(lambda r: r.total_seconds):.2f} s "
            f"({totals[0]:.2f} to {totals[-1]:.2f}), "
            f"{median(lambda r: r.total_cpu_seconds):.2f} s of CPU; of that "
            f"{median(lambda r: r.process_seconds):.3f} s after reading, "
            f"{median(lambda r: r.process_cpu_seconds):.3f} s of CPU; "
            f"config and checks {median(lambda r: r.check_seconds):.2f} s; anonymous memory up to "
            f"{max(run.peak_bytes for run in own) / 2**20:.0f} MiB, "
            f"{median(lambda r: r.end_bytes) / 2**20:.0f} MiB at the end"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
