"""How quantizers store a weight of a model, and what vLLM reads about it in config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from quantized import (
    FORMATS,
    Quantized,
    bytes_config,
    fp8_channels_config,
    quantize,
    quantize_bytes,
    quantize_fp8_channels,
)

_GROUP = 64
_BLOCK = 128

Parts = Mapping[str, torch.Tensor]  # by what stands in place of `weight` in the name


@dataclass(frozen=True)
class Form:
    """`parts`: of a weight, and the values they mean. `config`: of the modules it leaves out."""

    parts: Callable[[torch.Tensor], tuple[Parts, torch.Tensor]]
    config: Callable[[list[str]], dict]


def _four_bits(name: str) -> Form:
    store, describe = FORMATS[name]
    symmetric = name != "awq"

    def parts(weight: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        q = quantize(weight.float().numpy(), _GROUP, symmetric)
        return store(q, symmetric), _values(q, torch.float16 if name != "ct" else torch.bfloat16)

    def config(ignored: list[str]) -> dict:
        found = describe(_GROUP, symmetric)
        if name == "gptq":
            return found | {"dynamic": {f"-:^{one}$": {} for one in ignored}}
        found["modules_to_not_convert" if name == "awq" else "ignore"] = ignored
        return found

    return Form(parts, config)


def _values(q: Quantized, stored_in: torch.dtype) -> torch.Tensor:
    scales = torch.from_numpy(q.scales).to(stored_in).float()[:, q.groups]
    zeros = torch.from_numpy(q.zeros.astype(np.float32))[:, q.groups]
    return ((torch.from_numpy(q.codes).float() - zeros) * scales).bfloat16()


def _whole_bytes(quantize_one: Callable[[np.ndarray], Parts], describe: Callable[[], dict]) -> Form:
    def parts(weight: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        found = quantize_one(weight.float().numpy())
        values = found["weight"].float() * found["weight_scale"].float()
        return found, values.bfloat16()

    return Form(parts, lambda ignored: describe() | {"ignore": ignored})


def _fp8_blocks(weight: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    """Blocks of 128 x 128; the last may be smaller."""
    n, k = weight.shape
    rows, columns = -(-n // _BLOCK), -(-k // _BLOCK)
    padded = torch.zeros(rows * _BLOCK, columns * _BLOCK)
    padded[:n, :k] = weight.float()
    blocks = padded.view(rows, _BLOCK, columns, _BLOCK)
    scales = blocks.abs().amax((1, 3)) / 448
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    values = (codes.float() * scales[:, None, :, None]).view(padded.shape)[:n, :k]
    parts = {"weight": codes.view(padded.shape)[:n, :k], "weight_scale_inv": scales}
    return parts, values.bfloat16()


def _fp8_blocks_config(ignored: list[str]) -> dict:
    return {
        "quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
        "weight_block_size": [_BLOCK, _BLOCK], "modules_to_not_convert": ignored,
    }  # fmt: skip


def _fp8_tensor(weight: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    """As ModelOpt stores it: one scale for the weight, and one for its inputs."""
    scale = weight.float().abs().max() / 448
    codes = (weight.float() / scale).to(torch.float8_e4m3fn)
    parts = {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(0.02)}
    return parts, (codes.float() * scale).bfloat16()


def _modelopt_config(ignored: list[str]) -> dict:
    return {
        "quant_method": "modelopt", "quant_algo": "FP8", "ignore": ignored,
        "producer": {"name": "modelopt", "version": "0.29.0"},
    }  # fmt: skip


FORMS = {
    "ct": _four_bits("ct"),
    "gptq": _four_bits("gptq"),
    "awq": _four_bits("awq"),
    "int8": _whole_bytes(quantize_bytes, lambda: bytes_config(True)),
    "fp8": Form(_fp8_blocks, _fp8_blocks_config),  # as DeepSeek and Qwen store it
    "fp8-channel": _whole_bytes(quantize_fp8_channels, lambda: fp8_channels_config(True)),
    "fp8-tensor": Form(_fp8_tensor, _modelopt_config),
}
