"""Packed folders that lie: one table for all who open them.

Each attack changes a sound packed folder, and then, unless it is about the hashes themselves, makes every hash fit
again (raw.seal), as somebody would who wants the folder to be believed. `prepack verify` must fail each that any consumer
would compute something else from; the tests hold the command, the vLLM plug-in, the Python package and a loader written
by hand against the same table (attacks_test.py here, test_attacks.py of the plug-in).
"""

import json
import shutil

import numpy
import raw
import seeds
from attacked import ATTACKS, BASES, DOWN, GATE_UP, LAYER, QKV, SHARD, Bases, Folder, O, attack

__all__ = ["ATTACKS", "BASES", "Bases", "Folder"]


def reorder_channels(folder, module, order):
    """Puts blocks of output channels of a wna16 module into another order; `order`: list of (begin, end)."""
    n, k = folder.module(module)["shape"]
    weight = numpy.frombuffer(folder.file.tensor(f"{module}.weight"), numpy.uint8).reshape(n // 16, -1)
    folder.file.put(f"{module}.weight", numpy.concatenate([weight[b // 16 : e // 16] for b, e in order]).tobytes())
    scale = numpy.frombuffer(folder.file.tensor(f"{module}.weight_scale"), numpy.uint16).reshape(-1, n)
    folder.file.put(f"{module}.weight_scale", numpy.concatenate([scale[:, b:e] for b, e in order], 1).tobytes())


# --- what lies under which name ----------------------------------------------------------------------------------


@attack("fused", "refused")
def fused_order_changed(folder):
    """k, q, v in the tensors and in the manifest: a lie that agrees with itself."""
    q, kv = seeds.HIDDEN, seeds.KV
    reorder_channels(folder, QKV, [(q, q + kv), (0, q), (q + kv, q + 2 * kv)])
    members = folder.module(QKV)["fused"]
    folder.module(QKV)["fused"] = [members[1], members[0], members[2]]
    folder.save()


@attack("fused", "another model")
def fused_order_changed_in_the_tensors(folder):
    q, kv = seeds.HIDDEN, seeds.KV
    reorder_channels(folder, QKV, [(0, q), (q + kv, q + 2 * kv), (q, q + kv)])
    folder.save()


@attack("fused", "refused")
def fused_order_changed_in_the_manifest(folder):
    folder.module(GATE_UP)["fused"].reverse()
    folder.save()


@attack("fused", "refused")
def gate_and_up_exchanged(folder):
    n = seeds.INNER
    reorder_channels(folder, GATE_UP, [(n, 2 * n), (0, n)])
    folder.module(GATE_UP)["fused"].reverse()
    folder.save()


@attack("plain", "another model")
def layers_exchanged(folder):
    for name in ("self_attn.q_proj", "mlp.down_proj"):
        for part in ("weight", "weight_scale"):
            folder.exchange(f"{LAYER}.{name}.{part}", f"model.layers.1.{name}.{part}")
    folder.save()


@attack("plain", "another model")
def layers_exchanged_with_their_entries(folder):
    """Names in the header and whole entries of the manifest: each is what the other was."""
    first, second = f"{LAYER}.mlp.up_proj", "model.layers.1.mlp.up_proj"
    for entry in folder.file.entries:
        module, _, part = entry.name.rpartition(".")
        entry.name = f"{ {first: second, second: first}.get(module, module)}.{part}"
    modules = folder.manifest["modules"]
    modules[first], modules[second] = modules[second], modules[first]
    for name in (first, second):
        for part, record in modules[name]["parts"].items():
            record["tensor"] = f"{name}.{part}"
    folder.save()


@attack("plain", "another model")
def gate_and_up_exchanged_by_name(folder):
    gate, up = f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"
    for part in ("weight", "weight_scale"):
        folder.exchange(f"{gate}.{part}", f"{up}.{part}")
    hashes = folder.module(gate), folder.module(up)
    hashes[0]["source_xxh3_128"], hashes[1]["source_xxh3_128"] = (one["source_xxh3_128"] for one in hashes[::-1])
    folder.save()


@attack("plain", "another model")
def scale_swapped(folder):
    folder.exchange(f"{LAYER}.self_attn.k_proj.weight_scale", f"{LAYER}.self_attn.v_proj.weight_scale")
    folder.save()


@attack("asymmetric", "another model")
def zero_point_swapped(folder):
    folder.exchange(f"{LAYER}.self_attn.k_proj.weight_zero_point", f"{LAYER}.self_attn.v_proj.weight_zero_point")
    folder.save()


@attack("plain", "another model")
def norms_exchanged(folder):
    folder.exchange(f"{LAYER}.input_layernorm.weight", f"{LAYER}.post_attention_layernorm.weight")
    folder.save()


@attack("plain", "another model")
def head_is_the_embedding(folder):
    folder.file.put("lm_head.weight", folder.file.tensor("model.embed_tokens.weight"))
    folder.save()


@attack("plain", "another model")
def module_of_another_model(folder):
    """With its entry in the manifest and the hash of its source."""
    other = raw.File.read(folder.twin / SHARD)
    for part in ("weight", "weight_scale"):
        folder.file.put(f"{DOWN}.{part}", other.tensor(f"{DOWN}.{part}"))
    folder.manifest["modules"][DOWN] = json.loads((folder.twin / raw.MANIFEST).read_text())["modules"][DOWN]
    folder.save()


@attack("plain", "another model")
def all_of_another_model_but_its_source(folder):
    source = folder.manifest["source"]
    shutil.copyfile(folder.twin / SHARD, folder.path / SHARD)
    folder.manifest = json.loads((folder.twin / raw.MANIFEST).read_text())
    folder.manifest["source"] = source
    folder.seal()


def flip(folder, tensor, at, bit):
    data = bytearray(folder.file.tensor(tensor))
    data[at] ^= bit
    folder.file.put(tensor, data)


@attack("plain", "another model")
def one_bit_of_a_weight(folder):
    flip(folder, f"{O}.weight", 100, 1)
    folder.save()


@attack("plain", "another model")
def one_bit_of_a_weight_and_no_hash_fits(folder):
    flip(folder, f"{O}.weight", 100, 1)
    folder.save(sealed=False)


@attack("real", "another model")
def one_bit_of_a_real_weight(folder):
    flip(folder, f"{QKV}.weight", 1000, 0x10)
    folder.save()


# --- tensors beside those that belong there ----------------------------------------------------------------------


@attack("biases", "refused")
def bias_beside(folder):
    """vLLM loads it into the bias of the fused layer, over the one that is there."""
    folder.add(f"{LAYER}.self_attn.q_proj.bias", "BF16", [seeds.HIDDEN], bytes(2 * seeds.HIDDEN))
    folder.save()


@attack("fused", "refused")
def weight_beside(folder):
    """That of gate_proj, as if it were not fused: it is loaded over half of gate_up_proj."""
    n, k = seeds.INNER, seeds.HIDDEN
    folder.add(f"{LAYER}.mlp.gate_proj.weight", "I32", [n // 16, 2 * k], bytes(n * k // 2))
    folder.save()


@attack("plain", "another model")
def norm_of_a_layer_that_is_not_there(folder):
    """Only the bytes of a norm are others; a tensor of the old ones lies beside it under an unknown name."""
    name = f"{LAYER}.input_layernorm.weight"
    folder.add(f"{LAYER}.input_layernorm.bias", "BF16", [seeds.HIDDEN], folder.file.tensor(name))
    folder.file.put(name, bytes(2 * seeds.HIDDEN))
    folder.save()


@attack("biases", "refused")
def bias_dropped(folder):
    del folder.module(QKV)["parts"]["bias"]
    folder.drop(f"{QKV}.bias")
    folder.add(f"{QKV}.bias", "BF16", [seeds.HIDDEN + 2 * seeds.KV], bytes(2 * (seeds.HIDDEN + 2 * seeds.KV)))
    folder.save()


@attack("biases", "refused")
def bias_left_out(folder):
    del folder.module(QKV)["parts"]["bias"]
    folder.drop(f"{QKV}.bias")
    folder.save()


@attack("plain", "another model")
def module_left_out(folder):
    for part in folder.manifest["modules"].pop(DOWN)["parts"]:
        folder.drop(f"{DOWN}.{part}")
    folder.save()


@attack("plain", "refused")
def tensor_twice_in_the_manifest(folder):
    folder.manifest["tensors"].append(dict(folder.manifest["tensors"][0]))
    folder.save()


@attack("plain", "refused")
def tensor_twice_in_the_header(folder):
    """Readers take the first one or the last."""
    entry = folder.file.find(f"{O}.weight_scale")
    twin = raw.Entry(entry.name, entry.dtype, entry.shape, *folder.file.find("model.norm.weight").offsets)
    folder.file.entries.insert(0, twin)
    folder.save()


# --- numbers and orders --------------------------------------------------------------------------------------------


@attack("ordered", "another model")
def input_order_of_its_own(folder):
    order = numpy.frombuffer(folder.file.tensor(f"{DOWN}.input_order"), numpy.int32)[::-1]
    folder.file.put(f"{DOWN}.input_order", order.tobytes())
    folder.save()


@attack("ordered", "another model")
def input_order_dropped(folder):
    for name in [n for n in folder.manifest["modules"] if n.startswith(LAYER)]:
        del folder.module(name)["parts"]["input_order"]
        folder.drop(f"{name}.input_order")
    folder.save()


@attack("ordered", "another model")
def input_order_out_of_bounds(folder):
    order = numpy.frombuffer(folder.file.tensor(f"{DOWN}.input_order"), numpy.int32).copy()
    order[3] = order.size
    folder.file.put(f"{DOWN}.input_order", order.tobytes())
    folder.save()


@attack("plain", "refused")
def group_size_halved_in_numbers(folder):
    folder.module(DOWN)["numbers"]["group_size"] = seeds.GROUP // 2
    folder.save()


@attack("plain", "refused")
def group_size_halved_beside_numbers(folder):
    """The Python package reads this field, and vLLM that in `numbers`."""
    folder.module(DOWN)["group_size"] = seeds.GROUP // 2
    folder.save()


@attack("plain", "refused")
def symmetric_is_a_lie_beside_numbers(folder):
    folder.module(DOWN)["symmetric"] = False
    folder.save()


@attack("asymmetric", "another model")
def asymmetric_called_symmetric(folder):
    """In all fields that say it, and without the zero points."""
    record = folder.module(DOWN)
    record["symmetric"] = record["numbers"]["symmetric"] = True
    del record["parts"]["weight_zero_point"]
    folder.drop(f"{DOWN}.weight_zero_point")
    folder.save()


@attack("static", "another model")
def static_activations_called_dynamic(folder):
    """Every field says so, and the parts are those of such a layer."""
    record = folder.module(DOWN)
    record["numbers"]["activations"].update(dynamic=True)
    del record["parts"]["input_scale"]
    folder.drop(f"{DOWN}.input_scale")
    n, _ = record["shape"]
    sums = numpy.zeros(n, numpy.float32).tobytes()
    folder.add(f"{DOWN}.azp_adj", "F32", [n], sums)
    record["parts"]["azp_adj"] = folder.manifest["tensors"].pop()
    folder.save()


@attack("static", "another model")
def input_scale_doubled(folder):
    value = numpy.frombuffer(folder.file.tensor(f"{DOWN}.input_scale"), numpy.float32)
    folder.file.put(f"{DOWN}.input_scale", (value * 2).tobytes())
    folder.save()


@attack("dequantized", "another model")
def blocks_of_bf16_called_plain(folder):
    """Two layouts that have the same parts, dtypes and shapes."""
    for record in folder.manifest["modules"].values():
        record["layout"] = "plain/bf16"
    fingerprint = {"version": 1, "fingerprint": "ec8dc038fc969fe23d903d3927b29fe2"}
    folder.manifest["layouts"] = {"plain/bf16": fingerprint}
    folder.edit_config(lambda config: config["quantization_config"].update(layout="plain/bf16"))
    folder.save()


@attack("fp8", "refused")
def layout_of_the_same_shape(folder):
    """FP8 bytes under the other layout that has them in this shape."""
    record = folder.module(DOWN)
    record["layout"] = "vllm-cpu/fp8-w8a8-vnni4"
    folder.manifest["layouts"]["vllm-cpu/fp8-w8a8-vnni4"] = folder.manifest["layouts"]["vllm-cpu/fp8-vnni"]
    folder.save()


@attack("int8", "refused")
def int8_blocks_called_plain(folder):
    folder.module(DOWN)["layout"] = "vllm-cpu/int8-plain"
    folder.save()


@attack("plain", "refused")
def dtype_of_the_same_size(folder):
    for name in (f"{DOWN}.weight_scale", f"{O}.weight_scale"):
        folder.file.find(name).fields["dtype"] = "F16"
    folder.save()


@attack("plain", "refused")
def activations_in_f16(folder):
    """All scales are called F16, the manifest says F16, and so does config.json: bits that mean other numbers."""
    folder.manifest["activation_dtype"] = "F16"
    for module in folder.manifest["modules"]:
        folder.file.find(f"{module}.weight_scale").fields["dtype"] = "F16"
    folder.save()


@attack("plain", "another model")
def model_in_f16(folder):
    folder.edit_config(lambda config: config.update(dtype="float16"))
    activations_in_f16(folder)


import attacks_on_files  # noqa: E402, F401  the rest of the table
