#!/usr/bin/env python3
"""Times decoding in vLLM: tokens per second of a served model, for checkpoints and packed folders.

    build/release/bin/generate_checkpoint /var/tmp/source --embeddings --tokens 32000
    build/release/bin/prepack convert /var/tmp/source -o /var/tmp/packed --target vllm-cpu
    tools/setup_vllm
    ~/.cache/prepack/vllm-bench/bin/pip install --no-deps ./integrations/vllm
    ~/.cache/prepack/vllm-bench/bin/python bench/vllm_serve.py /var/tmp/source /var/tmp/packed

Every folder is served by a process of its own, with vLLM's defaults, torch.compile included. The
figure of a batch is the difference between --tokens tokens and one, so the prompts (8 tokens, one
for each sequence) do not count. vLLM leaves one CPU to its other threads; --bind takes its
VLLM_CPU_OMP_THREADS_BIND. --hide zentorch serves as if a package were not installed.

Exit codes: 0 measured; 2 usage; 6 vLLM cannot serve any of them here.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from vllm_load import NOT_RUN, parse

PROMPT_TOKENS = 8


def parse_batches(text):
    return [int(batch) for batch in text.split(",")]


def add_options(parser):
    parser.add_argument("--batch", type=parse_batches, default=[1], help="sequences at once: 1,8")
    parser.add_argument("--tokens", type=int, default=33, help="tokens of each sequence (33)")
    parser.add_argument("--bind", help="the CPUs that compute, for instance 0-1")
    parser.add_argument("--hide", help="a Python package that vLLM shall not find")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--served", action="store_true", help=argparse.SUPPRESS)


def rates_of(folder, arguments):
    """{batch: tokens per second of each run}, from an engine in this process."""
    if arguments.hide:
        sys.modules[arguments.hide] = None  # `import` fails from here on
    from vllm import LLM, SamplingParams

    engine = LLM(
        str(folder), skip_tokenizer_init=True, enforce_eager=arguments.eager, seed=0,
        max_model_len=256, max_num_seqs=max(arguments.batch), disable_log_stats=True,
        enable_prefix_caching=False,
    )  # fmt: skip

    def seconds(batch, tokens):
        prompts = [
            {"prompt_token_ids": list(range(1 + row, 1 + row + PROMPT_TOKENS))}
            for row in range(batch)
        ]
        sampling = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        begin = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - begin

    def rate(batch):
        taken = seconds(batch, arguments.tokens) - seconds(batch, 1)
        return batch * (arguments.tokens - 1) / taken

    rates = {}
    for batch in arguments.batch:
        rate(batch)  # the first one warms up
        rates[batch] = [rate(batch) for _ in range(arguments.runs)]
    return rates


def serve(folder, own_arguments, bind):
    """What a process that serves the folder measured; None if vLLM cannot."""
    environment = os.environ | {
        "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }  # fmt: skip
    if bind:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = bind
    command = [sys.executable, __file__, *own_arguments, "--served", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"not served: {folder}: {done.stderr[-2000:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def options_of(arguments):
    """Those that a serving process takes."""
    options = ["--runs", str(arguments.runs), "--tokens", str(arguments.tokens)]
    options += ["--batch", ",".join(map(str, arguments.batch))]
    options += ["--hide", arguments.hide] if arguments.hide else []
    return options + (["--eager"] if arguments.eager else [])


def main():
    arguments = parse(__doc__, add_options)
    if arguments.served:
        print(json.dumps(rates_of(arguments.folders[0], arguments)))
        return 0
    served = False
    for folder in arguments.folders:
        rates = serve(folder, options_of(arguments), arguments.bind)
        if rates is None:
            continue
        served = True
        figures = ", ".join(
            f"batch {batch}: {statistics.median(own):.2f} tokens/s ({min(own):.2f} to {max(own):.2f})"
            for batch, own in rates.items()
        )
        print(f"{folder}, median of {arguments.runs}: {figures}", flush=True)
    return 0 if served else NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
