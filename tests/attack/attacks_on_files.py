"""The rest of the table of attacks.py: files, config.json and what lies beside it, and the manifest itself."""

import json
import shutil

import raw
from attacked import ATTACKS, DOWN, LAYER, SHARD, Attack, O, attack

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


def put_norm_into(folder, shard):
    """In the index alone."""
    index = json.loads((folder.path / raw.INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = shard
    (folder.path / raw.INDEX).write_text(json.dumps(index))


@attack("plain", "the model")
def index_that_names_the_other_shard(folder):
    folder.in_two_shards()
    put_norm_into(folder, "model-00001-of-00002.safetensors")
    folder.seal()


@attack("plain", "refused")
def index_beside_a_single_file(folder):
    """It names a file that is not there."""
    folder.write_index()
    put_norm_into(folder, "model-00002-of-00002.safetensors")
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
