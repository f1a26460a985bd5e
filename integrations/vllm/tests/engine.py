"""Runs vLLM on a folder, in this process, and returns what it generated."""

import gc
from dataclasses import dataclass

from tiny_models import VOCABULARY

from prepack_vllm.kernels import forget_weights

PROMPTS = [
    [(7 * index * index + 3 * prompt + 5) % VOCABULARY for index in range(4 + 3 * prompt)]
    for prompt in range(3)
]
NEW_TOKENS = 12
SIZES = {"max_model_len": 64, "max_num_seqs": 4}


@dataclass(frozen=True)
class Generated:
    tokens: list[list[int]]
    logprobs: list[list[float]]  # of the generated tokens
    prompt_logprobs: list[list[float]]


def generate(folder, inspect=None, prompts=None, **options) -> Generated:
    """`inspect` is called with the loaded model, in this process. `prompts`: others than PROMPTS, as
    vLLM takes them."""
    from vllm import LLM, SamplingParams

    options = {"enforce_eager": True, "seed": 0, "disable_log_stats": True} | SIZES | options
    llm = LLM(str(folder), **options)
    try:
        if inspect is not None:
            llm.apply_model(inspect)
        parameters = SamplingParams(
            temperature=0, max_tokens=NEW_TOKENS, logprobs=1, prompt_logprobs=1, ignore_eos=True
        )
        prompts = prompts or [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        return Generated(
            [list(output.outputs[0].token_ids) for output in outputs],
            [
                _chosen(output.outputs[0].logprobs, output.outputs[0].token_ids)
                for output in outputs
            ],
            [_chosen(output.prompt_logprobs, output.prompt_token_ids) for output in outputs],
        )
    finally:
        shut_down(llm)


def _chosen(logprobs, tokens) -> list[float]:
    pairs = zip(logprobs, tokens, strict=True)
    return [entry[token].logprob for entry, token in pairs if entry is not None]


def shut_down(llm) -> None:
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    forget_weights()
    cleanup_dist_env_and_memory()
