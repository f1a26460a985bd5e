"""Models that are not here: their headers by range requests, and their files one by one.

    folder = prepack.remote.headers("hf://Qwen/Qwen3-8B-AWQ")
    prepack.plan(folder, target="vllm-cpu")

docs/remote.md describes it. The extra `remote` brings fsspec; what a protocol needs besides (s3fs,
gcsfs, huggingface_hub), fsspec names.
"""

from prepack.remote.files import get
from prepack.remote.headers import headers

__all__ = ["get", "headers"]
