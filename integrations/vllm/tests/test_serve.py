"""`vllm serve` on a packed folder, over HTTP: the tokens of the engine in this process."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import convert
from engine import NEW_TOKENS, PROMPTS, SIZES, generate
from tiny_models import LLAMA, write_quantized

START_SECONDS = 300


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_until_healthy(server, url, log) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the server ended:\n{log.read_text()[-4000:]}"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"the server did not start:\n{log.read_text()[-4000:]}")


@pytest.fixture
def serve(tmp_path):
    """serve(folder) gives the address of a server, which ends with the test."""
    servers = []

    def start(folder) -> str:
        port = free_port()
        log = tmp_path / "server.log"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--seed", "0"]
        for name, value in SIZES.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        environment = os.environ | {"VLLM_NO_USAGE_STATS": "1"}
        with log.open("wb") as output:
            server = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        servers.append(server)
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(server, url, log)
        return url

    yield start
    for server in servers:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()


def complete(url, model, prompt) -> list[int]:
    request = {
        "model": model, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0,
        "logprobs": 1, "ignore_eos": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/v1/completions", body, headers), timeout=120
    ) as answer:
        tokens = json.load(answer)["choices"][0]["logprobs"]["tokens"]
    return [int(token.removeprefix("token_id:")) for token in tokens]


@pytest.mark.parametrize("target", ["vllm-cpu", "zentorch"])
def test_completions(tmp_path, standins, serve, target):
    if any(name.startswith(("zentorch::" if target == "zentorch" else "_C::")) for name in standins):
        pytest.skip("a server of its own has the real ops only")
    source = write_quantized(tmp_path / "source", LLAMA, "ct", 32, False)
    packed = convert(source, tmp_path / "packed", "--target", target)
    expected = generate(packed).tokens
    url = serve(packed)
    # One by one, where the engine had them together: the sums in attention may differ.
    tokens = [complete(url, str(packed), prompt) for prompt in PROMPTS]
    assert [one[0] for one in tokens] == [one[0] for one in expected]
    assert all(len(one) == NEW_TOKENS for one in tokens)
