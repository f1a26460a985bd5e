"""Sounds and pictures to ask models about, computed here. And what vLLM's processors want in a folder
besides the model."""

from typing import Any

import numpy as np

RATE = 16000  # of sound, Hz


def sound(seconds: float, first: float) -> np.ndarray:
    """A tone that rises by half, with an overtone."""
    time = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * first * time * (1 + time / seconds / 4)
    return (0.3 * np.sin(phase) + 0.1 * np.sin(3 * phase)).astype(np.float32)


def picture(width: int, height: int) -> Any:
    """Colours that change from side to side, and stripes."""
    from PIL import Image

    y, x = np.mgrid[:height, :width]
    stripes = 64 * ((x + y) // 8 % 2)
    channels = [x * 190 // width + stripes, y * 190 // height + stripes, (x * y) % 255]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8))


def transcripts() -> list[Any]:
    """Of three sounds, for a model of encoder and decoder."""
    return [
        {
            "encoder_prompt": {
                "prompt_token_ids": [],
                "multi_modal_data": {"audio": (sound(1.5 + index, 220.0 * (index + 1)), RATE)},
            },
            "decoder_prompt": {"prompt_token_ids": [3, 5, 9, 11 + index]},
        }
        for index in range(3)
    ]
