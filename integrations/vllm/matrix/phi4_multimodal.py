"""A folder of Phi-4-multimodal, from one of Phi-4: the same layers, each with adapters for pictures and
for sounds, whose weights vLLM passes over. Its config and its processor are code of its makers; here
they are as much as vLLM asks for where no picture and no sound comes."""

import json
import re
from pathlib import Path

_RANK = 8
_CONFIG = """from transformers import PretrainedConfig


class Phi4MMConfig(PretrainedConfig):
    model_type = "phi4mm"
"""
_PROCESSOR = """from types import SimpleNamespace

from transformers import ProcessorMixin


class Phi4MMProcessor(ProcessorMixin):
    attributes = ["tokenizer"]
    tokenizer_class = "AutoTokenizer"

    def __init__(self, tokenizer=None, **others):
        super().__init__(tokenizer)
        self.audio_processor = SimpleNamespace(sampling_rate=16000)
        self.image_processor = SimpleNamespace(dynamic_hd=1)
"""
_LINEAR = re.compile(r"(.*\.layers\.\d+\..*_proj)(\..*)")


def as_multimodal(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {
        "model_type": "phi4mm", "img_processor": None,
        "auto_map": {"AutoConfig": "configuration_phi4mm.Phi4MMConfig"},
        "embd_layer": {"audio_embd_layer": {"embedding_cls": "audio", "compression_rate": 8,
                                            "projection_cls": "mlp"}},
        "audio_processor": {"name": "cascades", "config": {
            "input_size": 80, "attention_dim": 64, "attention_heads": 2, "linear_units": 64,
            "num_blocks": 1, "chunk_size": -1, "left_chunk": 18, "input_layer": "nemo_conv",
            "nemo_conv_settings": {"conv_channels": 64}, "time_reduction": 8,
            "relative_attention_bias_args": {"type": "t5"},
            "encoder_embedding_config": {"input_size": 80},
        }},
    }  # fmt: skip
    path.write_text(json.dumps(config), encoding="utf-8")
    (folder / "configuration_phi4mm.py").write_text(_CONFIG, encoding="utf-8")
    (folder / "processing_phi4mm.py").write_text(_PROCESSOR, encoding="utf-8")
    processor = {"processor_class": "Phi4MMProcessor",
                 "auto_map": {"AutoProcessor": "processing_phi4mm.Phi4MMProcessor"}}  # fmt: skip
    for name in ("processor_config.json", "preprocessor_config.json"):
        (folder / name).write_text(json.dumps(processor), encoding="utf-8")
    weights = folder / "model.safetensors"
    torch.manual_seed(17)
    tensors = {}
    for name, tensor in load_file(weights).items():
        match = _LINEAR.fullmatch(name)
        tensors[f"{match[1]}.base_layer{match[2]}" if match else name] = tensor
        for adapter in ("vision", "speech") if match else ():
            for side in "AB":
                lora = f"{match[1]}.lora_{side}.{adapter}.weight"
                tensors[lora] = torch.randn(_RANK, _RANK).bfloat16()
    save_file(tensors, weights, metadata={"format": "pt"})
