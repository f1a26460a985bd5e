"""A few greedy tokens of a checkpoint, with their logprobs, from vLLM: python serve_tokens.py FOLDER"""

import os
import sys

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1")

from vllm import LLM, SamplingParams  # noqa: E402


def main():
    llm = LLM(
        sys.argv[1], enforce_eager=True, max_model_len=128, skip_tokenizer_init=True, dtype="bfloat16"
    )
    sampling = SamplingParams(max_tokens=6, temperature=0, logprobs=0, detokenize=False)
    (request,) = llm.generate([{"prompt_token_ids": [5, 9, 17, 23, 40]}], sampling, use_tqdm=False)
    (output,) = request.outputs
    logprobs = [round(next(iter(one.values())).logprob, 3) for one in output.logprobs]
    print(*output.token_ids, "with logprobs", *logprobs)


if __name__ == "__main__":
    main()
