"""kt-kernel's own converter and prepack side by side, on the same experts.

    python kt_converter.py make BITS FOLDER [EXPERTS LAYERS]     # writes FOLDER/bf16 and FOLDER/int: the same model
    python kt_converter.py theirs BITS SCRIPT FOLDER/bf16 OUT    # runs kt-kernel's scripts/convert_cpu_weights.py
    python kt_converter.py compare OURS THEIRS                   # every tensor of experts, byte for byte

with kt-kernel 0.7.2, torch and safetensors, and compressed-tensors 0.19.0 for 4 BITS (else 8); the converter is in
kt-kernel's repository, not in its package. Run `theirs` and prepack under /usr/bin/time -v. The experts have the size
of Qwen3-30B-A3B's. Weights are code · 2^e with a code of ±127 (±7) in every channel, so kt-kernel's quantizer finds the
very codes and scales of the integer checkpoint.

kt-kernel asks for pinned memory, which torch gives out only beside a GPU; `theirs` gives it ordinary memory instead,
and changes nothing else.
"""

import json
import runpy
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

HIDDEN, NEURONS = 2048, 768
CHECKPOINTS = Path(__file__).parents[1] / "fixtures" / "checkpoints"


def config(bits, experts, layers):
    return json.loads((CHECKPOINTS / f"ct-int{bits}-moe" / "config.json").read_text()) | {
        "hidden_size": HIDDEN, "moe_intermediate_size": NEURONS, "intermediate_size": NEURONS, "num_experts": experts,
        "num_hidden_layers": layers, "num_experts_per_tok": 8}


def others(layer, experts):
    shapes = {"self_attn.q_proj": (64, HIDDEN), "self_attn.k_proj": (32, HIDDEN), "self_attn.v_proj": (32, HIDDEN),
              "self_attn.o_proj": (HIDDEN, 64), "self_attn.q_norm": (32,), "self_attn.k_norm": (32,),
              "mlp.gate": (experts, HIDDEN), "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,)}
    return {f"model.layers.{layer}.{name}.weight": torch.zeros(shape, dtype=torch.bfloat16)
            for name, shape in shapes.items()}


def stored(bits, name, codes, scale):
    if bits == 8:
        return {name + ".weight": codes, name + ".weight_scale": scale}
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    return {name + ".weight_packed": pack_to_int32(codes, bits), name + ".weight_scale": scale,
            name + ".weight_shape": torch.tensor(codes.shape)}


def make(bits, folder, experts, layers):
    most = 2 ** (bits - 1) - 1
    random = torch.Generator().manual_seed(1)
    sizes = {"gate_proj": (NEURONS, HIDDEN), "up_proj": (NEURONS, HIDDEN), "down_proj": (HIDDEN, NEURONS)}
    plain = config(bits, experts, layers)
    quantized = dict(plain)
    del plain["quantization_config"]
    for kind, text in (("bf16", plain), ("int", quantized)):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "config.json").write_text(json.dumps(text, indent=2))
    index = {"bf16": {}, "int": {}}
    for layer in range(layers):
        files = {"bf16": others(layer, experts), "int": others(layer, experts)}
        if layer == 0:
            for tensors in files.values():
                tensors["model.embed_tokens.weight"] = torch.zeros(32, HIDDEN, dtype=torch.bfloat16)
                tensors["model.norm.weight"] = torch.zeros(HIDDEN, dtype=torch.bfloat16)
        for expert in range(experts):
            for projection, (n, k) in sizes.items():
                name = f"model.layers.{layer}.mlp.experts.{expert}.{projection}"
                codes = torch.randint(-most, most + 1, (n, k), dtype=torch.int8, generator=random)
                codes[torch.arange(n), torch.randint(0, k, (n,), generator=random)] = most
                scale = torch.exp2(torch.randint(-14, -10, (n, 1), generator=random).float()).bfloat16()
                files["bf16"][name + ".weight"] = codes.bfloat16() * scale
                files["int"] |= stored(bits, name, codes, scale)
        for kind, tensors in files.items():
            file = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
            save_file(tensors, folder / kind / file, {"format": "pt"})
            index[kind] |= dict.fromkeys(tensors, file)
    for kind, weights in index.items():
        text = json.dumps({"metadata": {}, "weight_map": weights})
        (folder / kind / "model.safetensors.index.json").write_text(text)


def theirs(bits, script, source, out):
    ordinary_empty = torch.empty

    def empty(*args, **options):
        options.pop("pin_memory", None)
        return ordinary_empty(*args, **options)

    torch.empty = empty
    sys.argv = [script, "--input-path", source, "--input-type", "bf16", "--output", out, "--quant-method", f"int{bits}",
                "--cpuinfer-threads", "2", "--threadpool-count", "1"]
    runpy.run_path(script, run_name="__main__")


def tensors_of(folder):
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                if "_exps." in name:
                    yield name, file.get_tensor(name)


def compare(ours, other):
    own = dict(tensors_of(ours))
    names, size = set(), 0
    for name, tensor in tensors_of(other):
        assert torch.equal(own[name].flatten().view(torch.uint8), tensor.flatten().view(torch.uint8)), name
        names.add(name)
        size += tensor.nbytes
    assert names == set(own), names ^ set(own)
    print(f"{len(names)} tensors, {size} bytes, all equal")


def main():
    command, *arguments = sys.argv[1:]
    if command == "make":
        bits, folder, experts, layers = arguments if len(arguments) > 2 else (*arguments, 64, 4)
        make(int(bits), Path(folder), int(experts), int(layers))
    else:
        {"theirs": theirs, "compare": compare}[command](*arguments)


if __name__ == "__main__":
    main()
