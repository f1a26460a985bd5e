"""Packed folders that lie: one table for all who open them.

Each attack changes a sound packed folder, and then, unless it is about the hashes themselves, makes every hash fit
again (raw.seal), as somebody would who wants the folder to be believed. `prepack verify` must fail each that any consumer
would compute something else from; the tests hold the command, the vLLM plug-in, the Python package and a loader written
by hand against the same table (attacks_test.py here, test_attacks.py of the plug-in).
"""

import json
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

import numpy
import raw
import seeds

LAYER = "model.layers.0"
QKV, GATE_UP, DOWN, O = (f"{LAYER}.{name}" for name in (
    "self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj", "self_attn.o_proj"))  # fmt: skip
BUNDLED = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints"
SHARD = "model.safetensors"

# Sound folders: source (a form of seeds.py, or a bundled checkpoint), what else it has, options of convert.
BASES = {
    "fused": ("ct-sym", {}, ["--fuse"]),
    "plain": ("ct-sym", {}, []),
    "asymmetric": ("ct-asym", {}, []),
    "ordered": ("gptq-order", {}, []),
    "biases": ("ct-sym", {"bias": True}, ["--fuse"]),
    "w4a8": ("ct-sym", {}, ["--scheme", "w4a8"]),
    "fp8": ("ct-fp8", {}, []),
    "dequantized": ("ar-w8-sym", {}, ["--fallback", "dequantize"]),
    "int8": ("ct-int8", {}, []),
    "real": ("ct-w4a16-g128-sym", {}, ["--fuse"]),
    "static": ("ct-w8a8-static", {}, []),
}


class Folder:
    """A packed folder that is being changed, with the source that it was made from and a folder of another model."""

    def __init__(self, path, source, twin):
        self.path = path
        self.source = source
        self.twin = twin
        self.manifest = json.loads((path / raw.MANIFEST).read_text())
        self.file = raw.File.read(path / SHARD)

    def module(self, name):
        return self.manifest["modules"][name]

    def save(self, sealed=True, places=True):
        self.file.write(self.path / SHARD)
        if sealed:
            raw.seal(self.path, self.manifest, places)

    def exchange(self, first, second):
        """The bytes of two tensors of one size."""
        data = self.file.tensor(first), self.file.tensor(second)
        self.file.put(first, data[1])
        self.file.put(second, data[0])

    def add(self, name, dtype, shape, data):
        """A tensor that passed through, as the manifest says."""
        self.file.entries.append(raw.Entry(name, dtype, list(shape), len(self.file.data), len(self.file.data) + len(data)))
        self.file.data += data
        self.manifest["tensors"].append({"tensor": name, "file": SHARD, "offset": 0, "dtype": dtype,
                                         "shape": list(shape), "xxh3_128": ""})  # fmt: skip

    def drop(self, name):
        """Takes a tensor out of the file; the manifest is left alone."""
        entry = self.file.find(name)
        begin, end = entry.offsets
        self.file.entries.remove(entry)
        for other in self.file.entries:
            if other.offsets[0] >= end:
                other.fields["data_offsets"] = [one - (end - begin) for one in other.offsets]
        del self.file.data[begin:end]

    def move(self, names, file):
        """Tensors into a file of their own, which the manifest knows."""
        moved = {n: (self.file.find(n).dtype, self.file.find(n).shape, self.file.tensor(n)) for n in names}
        for name in names:
            self.drop(name)
        raw.pack_file(moved, pad_to=4096).write(self.path / file)
        for record in raw.records(self.manifest):
            record["file"] = file if record["tensor"] in moved else record["file"]
        self.manifest["files"][file] = {"bytes": 0, "xxh3_128": ""}

    def write_index(self, only=None):
        """An index of what the manifest says; `only` of the files with these names."""
        places = {record["tensor"]: record["file"] for record in raw.records(self.manifest)}
        weight_map = {name: file for name, file in sorted(places.items()) if only is None or file in only}
        (self.path / raw.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        self.manifest["files"][raw.INDEX] = {"bytes": 0, "xxh3_128": ""}

    def rename_shard(self, name):
        """Gives the only shard another name in the manifest, and in the folder after it was written."""
        for record in raw.records(self.manifest):
            record["file"] = name if record["file"] == SHARD else record["file"]
        self.manifest["files"][name] = self.manifest["files"].pop(SHARD)
        self.file.write(self.path / SHARD)
        (self.path / SHARD).rename(self.path / name)

    def in_two_shards(self):
        """As a folder of two shards with an index, soundly: norms and embeddings in the second one."""
        rest = [record["tensor"] for record in self.manifest["tensors"]]
        self.move(rest, "model-00002-of-00002.safetensors")
        self.rename_shard("model-00001-of-00002.safetensors")
        self.write_index()

    def seal(self):
        raw.seal(self.path, self.manifest)

    def edit_config(self, change):
        document = json.loads((self.path / "config.json").read_text())
        change(document)
        (self.path / "config.json").write_text(json.dumps(document, indent=2))


@dataclass(frozen=True)
class Attack:
    name: str
    base: str
    change: object  # a function of a Folder
    # What vLLM makes of it: "refused", "the model", or "another model", which verify must fail.
    vllm: str
    verify: tuple = (1, 3)


ATTACKS = []


def attack(base, vllm, verify=(1, 3)):
    def add(function):
        name = function.__name__.replace("_", "-")
        ATTACKS.append(Attack(name, base, function, vllm, verify))
        return function

    return add


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


@attack("plain", "another model")
def one_bit_of_a_weight(folder):
    data = bytearray(folder.file.tensor(f"{O}.weight"))
    data[100] ^= 1
    folder.file.put(f"{O}.weight", data)
    folder.save()


@attack("plain", "another model")
def one_bit_of_a_weight_and_no_hash_fits(folder):
    data = bytearray(folder.file.tensor(f"{O}.weight"))
    data[100] ^= 1
    folder.file.put(f"{O}.weight", data)
    folder.save(sealed=False)


@attack("real", "another model")
def one_bit_of_a_real_weight(folder):
    data = bytearray(folder.file.tensor(f"{QKV}.weight"))
    data[1000] ^= 0x10
    folder.file.put(f"{QKV}.weight", data)
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


# --- files -----------------------------------------------------------------------------------------------------------


@attack("plain", "refused")
def tensor_in_hidden_shard(folder):
    folder.move([f"{DOWN}.weight", f"{DOWN}.weight_scale"], ".hidden.safetensors")
    folder.save()


@attack("plain", "refused")
def norm_in_hidden_shard(folder):
    """vLLM's model keeps the ones that it was made with."""
    folder.move(["model.norm.weight"], ".hidden.safetensors")
    folder.save()


@attack("plain", "the model")
def tensor_in_a_shard_of_another_name(folder):
    """vLLM takes any file, transformers does not."""
    folder.move(["model.norm.weight"], "extra.safetensors")
    folder.save()


@attack("plain", "refused")
def tensor_in_a_folder_below(folder):
    (folder.path / "below").mkdir()
    folder.move(["model.norm.weight"], "below/model.safetensors")
    folder.save()


@attack("plain", "refused")
def index_without_a_shard(folder):
    folder.in_two_shards()
    folder.write_index(only=["model-00001-of-00002.safetensors"])
    folder.seal()


@attack("plain", "the model", verify=(0,))
def two_sound_shards(folder):
    """No attack: shows that what is done to folders here leaves sound ones sound."""
    folder.in_two_shards()
    folder.seal()


@attack("plain", "the model")
def index_that_names_the_other_shard(folder):
    folder.in_two_shards()
    index = json.loads((folder.path / raw.INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors"
    (folder.path / raw.INDEX).write_text(json.dumps(index))
    folder.seal()


@attack("plain", "refused")
def index_beside_a_single_file(folder):
    """It names a file that is not there."""
    folder.write_index()
    index = json.loads((folder.path / raw.INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors"
    (folder.path / raw.INDEX).write_text(json.dumps(index))
    folder.save()


@attack("plain", "refused")
def consolidated_beside(folder):
    shutil.copyfile(folder.twin / SHARD, folder.path / "consolidated.safetensors")
    folder.save()


@attack("plain", "refused")
def consolidated_beside_and_listed(folder):
    """vLLM would load it alone."""
    shutil.copyfile(folder.twin / SHARD, folder.path / "consolidated.safetensors")
    folder.manifest["files"]["consolidated.safetensors"] = {"bytes": 0, "xxh3_128": ""}
    folder.save()


@attack("plain", "refused")
def consolidated_in_a_folder_below(folder):
    (folder.path / "original").mkdir()
    shutil.copyfile(folder.twin / SHARD, folder.path / "original" / "consolidated.safetensors")
    folder.save()


@attack("plain", "the model")
def odd_offset(folder):
    """All data lies one byte further than the format promises."""
    folder.file.pad_to = 1
    text = folder.file.header()
    folder.file.header_text = text + b" " * (4097 - (8 + len(text)))
    folder.save()


@attack("plain", "refused")
def offset_float_in_the_header(folder):
    begin, end = folder.file.find(f"{O}.weight").offsets
    folder.file.find(f"{O}.weight").fields["data_offsets"] = [float(begin), float(end)]
    folder.file.write(folder.path / SHARD)
    raw.write_manifest(folder.path, folder.manifest)


@attack("plain", "refused")
def offset_float_in_the_manifest(folder):
    record = folder.module(DOWN)["parts"]["weight"]
    record["offset"] = float(record["offset"])
    folder.save(places=False)


@attack("plain", "refused")
def data_behind_the_last_tensor(folder):
    folder.file.tail = b"\0" * 64
    folder.save()


@attack("plain", "the model")
def shard_is_a_link_out_of_the_folder(folder):
    folder.save()
    target = folder.path.parent / "elsewhere.safetensors"
    (folder.path / SHARD).rename(target)
    (folder.path / SHARD).symlink_to(target)


# --- config.json and the files beside it ---------------------------------------------------------------------------


def config_attack(name, vllm, change):
    def function(folder):
        folder.edit_config(change)
        folder.save()

    ATTACKS.append(Attack(f"config-{name}", "plain", function, vllm))


config_attack("rope-theta", "another model", lambda c: c.update(rope_theta=500000.0))
config_attack("norm-epsilon", "another model", lambda c: c.update(rms_norm_eps=1e-2))
config_attack("activation", "refused", lambda c: c.update(hidden_act="gelu"))
config_attack("tied-head", "the model", lambda c: c.update(tie_word_embeddings=True))
config_attack("fewer-layers", "refused", lambda c: c.update(num_hidden_layers=1))
config_attack("more-layers", "another model", lambda c: c.update(num_hidden_layers=3))
config_attack("target", "refused", lambda c: c["quantization_config"].update(target="zentorch"))
config_attack("version", "refused", lambda c: c["quantization_config"].update(format_version=1))
config_attack("method", "refused", lambda c: c["quantization_config"].update(quant_method="awq"))
config_attack("not-quantized", "refused", lambda c: c.pop("quantization_config"))
config_attack("layout", "the model", lambda c: c["quantization_config"].update(layout="vllm-cpu/int4-w4a8"))
config_attack("group-size", "the model", lambda c: c["quantization_config"].update(group_size=64))
config_attack("kept", "the model", lambda c: c["quantization_config"].update(kept=[DOWN]))
config_attack("source", "the model", lambda c: c["quantization_config"]["source"].update(format="int-quantized"))
config_attack("ignore", "the model", lambda c: c["quantization_config"].update(ignore=[DOWN]))


def file_attack(name, vllm, file, data, listed):
    def function(folder):
        (folder.path / file).write_bytes(data)
        if listed:
            folder.manifest["files"][file] = {"bytes": 0, "xxh3_128": ""}
        folder.save()

    ATTACKS.append(Attack(f"{name}{'-and-listed' if listed else ''}", "plain", function, vllm))


for _listed in (False, True):
    file_attack("generation-config-changed", "the model", "generation_config.json", b'{"eos_token_id": 7}', _listed)
    file_attack("chat-template-added", "the model", "chat_template.jinja", b"{{ messages }}", _listed)
    file_attack("hf-quant-config-added", "the model", "hf_quant_config.json", b'{"quantization": {}}', _listed)
    file_attack("quantize-config-added", "the model", "quantize_config.json", b'{"bits": 8}', _listed)
    file_attack("pickle-added", "the model", "pytorch_model.bin", b"\x80\x02}q\x00.", _listed)


# --- the manifest ----------------------------------------------------------------------------------------------------


@attack("plain", "the model")
def kept_names_a_module_that_never_was_quantized(folder):
    folder.manifest["kept"]["lm_head"] = "no layout"
    folder.save()


@attack("plain", "refused")
def kept_names_a_packed_module(folder):
    folder.manifest["kept"][DOWN] = "no layout"
    folder.save()


@attack("plain", "the model")
def source_config_of_another_format(folder):
    folder.manifest["source"]["quantization_config"]["format"] = "int-quantized"
    folder.save()


@attack("plain", "the model")
def target_in_config_and_manifest(folder):
    folder.edit_config(lambda config: config["quantization_config"].update(target="zentorch"))
    folder.manifest["target"] = "zentorch"
    folder.save()


@attack("plain", "refused")
def fingerprint_of_another_version(folder):
    folder.manifest["layouts"]["vllm-cpu/wna16"]["version"] = 2
    folder.save()


@attack("plain", "refused")
def tensor_of_another_module_in_an_entry(folder):
    """The manifest says that down_proj's scales are o_proj's, and the other way round."""
    first, second = folder.module(DOWN)["parts"], folder.module(O)["parts"]
    first["weight_scale"], second["weight_scale"] = second["weight_scale"], first["weight_scale"]
    folder.save()


@attack("plain", "refused")
def tensor_of_a_sibling_in_an_entry(folder):
    """Of the same shape, so that only the name tells."""
    first, second = (folder.module(f"{LAYER}.mlp.{name}")["parts"] for name in ("gate_proj", "up_proj"))
    first["weight"], second["weight"] = second["weight"], first["weight"]
    folder.save()


@attack("plain", "refused")
def members_behind_the_hash(folder):
    folder.save()
    text = (folder.path / raw.MANIFEST).read_text().rstrip()
    (folder.path / raw.MANIFEST).write_text(f'{text[:-1]}, "kept": {{}}}}\n')


@attack("plain", "refused")
def key_twice_in_the_manifest(folder):
    folder.save()
    text = (folder.path / raw.MANIFEST).read_text()
    text = text.replace('"target": "vllm-cpu"', '"target": "zentorch",\n  "target": "vllm-cpu"', 1)
    end = text.rindex(",\n")
    (folder.path / raw.MANIFEST).write_text(f'{text[:end]},\n  "manifest_xxh3_128": "{raw.xxh3(text[:end].encode())}"\n}}\n')


@attack("plain", "refused")
def manifest_resealed_with_a_lost_module(folder):
    """Its tensors stay in the file."""
    for record in folder.manifest["modules"].pop(DOWN)["parts"].values():
        folder.manifest["tensors"].append(record)
    folder.save()


class Bases:
    """Sound folders, each made when it is first asked for: (packed, source, packed folder of a twin)."""

    def __init__(self, place, tool):
        self.place = pathlib.Path(place)
        self.tool = tool
        self.made = {}

    def get(self, name):
        if name not in self.made:
            form, more, options = BASES[name]
            packed = []
            for twin in range(2):
                source = BUNDLED / form
                if form in seeds.FORMS:
                    source = seeds.write_seed(self.place / f"{name}-source-{twin}", form, 100 + twin, **more)
                packed.append((self.place / f"{name}-{twin}", source))
                command = [self.tool, "convert", source, "-o", packed[-1][0], "-t", "vllm-cpu", "--no-flush", "-q", *options]
                subprocess.run(list(map(str, command)), check=True)
            self.made[name] = (*packed[0], packed[1][0])
        return self.made[name]

    def attacked(self, attack, place):
        """A copy of the base that is attacked, and its source."""
        packed, source, twin = self.get(attack.base)
        path = pathlib.Path(place) / attack.name
        shutil.copytree(packed, path)
        attack.change(Folder(path, source, twin))
        return path, source
