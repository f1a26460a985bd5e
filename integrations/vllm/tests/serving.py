"""`vllm serve` on a folder, over HTTP."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from engine import NEW_TOKENS, SIZES

_START_SECONDS = 300


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _wait_until_healthy(server: subprocess.Popen, url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        ended = server.poll() is not None
        assert not ended, f"the server ended:\n{log.read_text()[-4000:]}"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the server did not start:\n{log.read_text()[-4000:]}")


@contextlib.contextmanager
def served(folder: Path, log: Path) -> Iterator[str]:
    """The address of a server, which ends with the block."""
    port = _free_port()
    with log.open("wb") as output:
        server = _start(folder, port, output)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(server, url, log)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()


def _start(folder: Path, port: int, output: IO[bytes]) -> subprocess.Popen:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--seed", "0"]
    for name, value in SIZES.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    environment = os.environ | {"VLLM_NO_USAGE_STATS": "1"}
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def complete(url: str, model: Path, prompt: list[int]) -> tuple[list[int], list[float]]:
    """Tokens, and their logprobs."""
    request = {
        "model": str(model), "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0,
        "logprobs": 1, "ignore_eos": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip
    found = _post(f"{url}/v1/completions", request)["choices"][0]["logprobs"]
    tokens = [int(token.removeprefix("token_id:")) for token in found["tokens"]]
    return tokens, found["token_logprobs"]


def _post(url: str, request: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    body = json.dumps(request).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=120) as answer:
        return json.load(answer)
