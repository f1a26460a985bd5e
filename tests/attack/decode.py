"""What a quantized checkpoint means, read by hand from the tensors and the config, strictly.

`Bad`: no reader may take the folder for a model. `Unclear`: it may mean something, but this decoder does not know what;
nothing is concluded from such a one.
"""

import json
import re
import struct
from dataclasses import dataclass, field

import numpy
import raw
from seeds import AWQ_ORDER, fp8_table, from_bf16


class Bad(Exception):
    pass


class Unclear(Exception):
    pass


def demand(condition, what):
    if not condition:
        raise Bad(what)


@dataclass
class Weight:
    """w(n, k) = codes · scales, where codes have their zero point taken off already."""

    codes: numpy.ndarray  # [N, K]
    scales: numpy.ndarray  # f32 [N, K]
    bias: numpy.ndarray | None = None


@dataclass
class Model:
    tensors: dict = field(default_factory=dict)  # name → (dtype, shape, bytes)
    linears: dict = field(default_factory=dict)  # name → Weight

    def of(self, module):
        return {name for name in self.tensors if name.rpartition(".")[0] == module}


def _pairs(pairs):
    keys = [key for key, _ in pairs]
    demand(len(keys) == len(set(keys)), "a key is there twice")
    return dict(pairs)


def parse(text):
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise Bad(f"no JSON: {error}") from error


def read_file(path):
    """name → (dtype, shape, bytes) of a safetensors file in which nothing is amiss."""
    text = path.read_bytes()
    demand(len(text) >= 8, "no header")
    length = struct.unpack("<Q", text[:8])[0]
    demand(8 + length <= len(text), "the header is cut")
    header = parse(text[8 : 8 + length])
    demand(isinstance(header, dict), "the header is no object")
    metadata = header.pop("__metadata__", {})
    demand(isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()), "metadata")
    data, spans, tensors = text[8 + length :], [], {}
    for name, fields in header.items():
        demand(isinstance(fields, dict) and {"dtype", "shape", "data_offsets"} <= set(fields), "fields are missing")
        entry = raw.Entry(name, None, None, 0, 0)
        entry.fields = fields
        size = entry.bytes()
        demand(size is not None, f"{name}: dtype and shape have no size")
        offsets = entry.offsets
        demand(isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets), "offsets")
        demand(offsets[1] - offsets[0] == size, f"{name}: offsets and shape differ")
        spans.append(tuple(offsets))
        tensors[name] = (entry.dtype, entry.shape, data[offsets[0] : offsets[1]])
    end = 0
    for begin, last in sorted(spans):
        demand(begin == end, "holes or overlaps")
        end = last
    demand(end == len(data), "data is missing or too much")
    return tensors


def is_shard(path):
    return path.name.endswith(".safetensors") and not path.name.startswith(".")


def read_tensors(folder):
    """As loaders read a folder: the files that the index names, or all."""
    index = folder / raw.INDEX
    files = sorted(filter(is_shard, folder.iterdir()))
    if index.exists() and not (folder / "model.safetensors").exists():
        document = parse(index.read_bytes())
        weight_map = document.get("weight_map") if isinstance(document, dict) else None
        demand(isinstance(weight_map, dict), "the index has no map")
        demand(all(isinstance(file, str) for file in weight_map.values()), "the index names no files")
        found = {}
        for file in sorted(set(weight_map.values())):
            demand("/" not in file and (folder / file).is_file(), f"the shard {file} is missing")
            for name, value in read_file(folder / file).items():
                demand(weight_map.get(name) == file, f"{name} is not in the index, or elsewhere")
                found[name] = value
        demand(set(found) == set(weight_map), "the index names tensors that are not there")
        if {path.name for path in files} != set(weight_map.values()):
            raise Unclear("files beside those of the index")
        return found
    names = [path.name for path in files]
    if index.exists():
        raise Unclear("an index beside a single file")
    if names != ["model.safetensors"]:
        raise Unclear("other names of files")
    return read_file(files[0])


def array(tensor, kinds, rank=2):
    dtype, shape, data = tensor
    demand(dtype in kinds, f"dtype {dtype}")
    demand(len(shape) == rank, "rank")
    types = {
        "I8": numpy.int8, "U8": numpy.uint8, "F8_E4M3": numpy.uint8, "I32": numpy.uint32, "I64": numpy.int64,
        "BF16": numpy.uint16, "F16": numpy.float16, "F32": numpy.float32,
    }  # fmt: skip
    values = numpy.frombuffer(data, types[dtype]).reshape(shape)
    return from_bf16(values).reshape(shape) if dtype == "BF16" else values


def floats(tensor, rank=2):
    values = array(tensor, ("BF16", "F16", "F32"), rank).astype(numpy.float32)
    demand(numpy.isfinite(values).all(), "a value is not finite")
    return values


def nibbles(words, axis):
    """The reverse of seeds.words."""
    words = numpy.moveaxis(words, axis, -1)
    values = words[..., None] >> (4 * numpy.arange(8, dtype=numpy.uint32)) & 15
    return numpy.moveaxis(values.reshape(*words.shape[:-1], -1), -1, axis).astype(numpy.int64)


def spread(values, k):
    """[N, G] to [N, K]."""
    groups = values.shape[1]
    demand(groups > 0 and k % groups == 0, "groups do not divide the input channels")
    return numpy.repeat(values, k // groups, axis=1)


def _compressed_tensors(tensors, name, config):
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise Unclear("groups")
    [group] = groups.values()
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict) or group.get("targets") != ["Linear"]:
        raise Unclear("the group")
    known = {"num_bits", "type", "symmetric", "dynamic", "strategy", "group_size"}
    if set(weights) - known or {"sparsity_config", "transform_config"} & set(config):
        raise Unclear("more keys")
    if weights.get("strategy") not in ("group", "channel"):
        raise Unclear("strategy")
    packed = f"{name}.weight_packed" in tensors
    own = config.get("format") if group.get("format") is None else group["format"]
    expected = "pack-quantized" if packed else ("int-quantized", "float-quantized", "naive-quantized")
    if own is None:
        raise Unclear("no format")
    demand(isinstance(own, str) and own in expected, "the format")
    if len(tensors[f"{name}.weight_scale"][1]) == 1:
        raise Unclear("scales in one dimension")
    scale = floats(tensors[f"{name}.weight_scale"])
    if packed:
        demand((weights.get("num_bits"), weights.get("type", "int")) == (4, "int"), "num_bits or type")
        words = array(tensors[f"{name}.weight_packed"], ("I32",))
        n, k = words.shape[0], words.shape[1] * 8
        if f"{name}.weight_shape" in tensors:  # 4 bits fill their words without it, too
            n, k = (int(one) for one in array(tensors[f"{name}.weight_shape"], ("I64",), 1))
        demand(words.shape == (n, -(-k // 8)), "words do not fit weight_shape")
        codes = nibbles(words, 1)[:, :k]
        zero = numpy.full(scale.shape, 8)
        symmetric = weights.get("symmetric", True)
        demand(symmetric == (f"{name}.weight_zero_point" not in tensors), "zero points and symmetric")
        if not symmetric:
            zero = nibbles(array(tensors[f"{name}.weight_zero_point"], ("I32",)), 0)[:n]
            demand(zero.shape == scale.shape, "zero points and scales differ in shape")
        demand(scale.shape[0] == n, "scales have other rows")
        codes = codes - spread(zero, k)
    else:
        is_float = tensors[f"{name}.weight"][0] == "F8_E4M3"
        kind = (weights.get("num_bits"), weights.get("type", "int"))
        demand(kind == (8, "float" if is_float else "int"), "num_bits or type")
        codes = array(tensors[f"{name}.weight"], ("I8", "F8_E4M3"))
        codes = fp8_table()[codes] if is_float else codes.astype(numpy.int64)
        demand(not numpy.isnan(codes).any(), "NaN codes")
        n, k = codes.shape
    demand(scale.shape[0] == n, "scales have other rows")
    group_size = weights.get("group_size")
    if weights["strategy"] == "group":
        demand(type(group_size) is int and group_size * scale.shape[1] == k, "group_size does not fit")
    else:
        demand(scale.shape[1] == 1, "one scale per channel")
    return Weight(codes, spread(scale, k))


def _gptq(tensors, name, config):
    config = {key.lower(): value for key, value in config.items()}  # as GPTQModel reads it
    demand(config.get("bits") in (None, 4) and type(config.get("bits")) is not float, "bits")
    if config.get("checkpoint_format", "gptq") != "gptq" or config.get("dynamic"):
        raise Unclear("another kind of GPTQ")
    codes = nibbles(array(tensors[f"{name}.qweight"], ("I32",)), 0).T
    n, k = codes.shape
    scale = floats(tensors[f"{name}.scales"])
    groups = scale.shape[0]
    demand(scale.shape[1] == n, "scales and weight differ")
    size = 128 if config.get("group_size") is None else config["group_size"]
    demand(type(size) is int and (size * groups == k or (size == -1 and groups == 1)), "group_size")
    if f"{name}.qzeros" not in tensors:
        raise Unclear("without zero points")
    zero = nibbles(array(tensors[f"{name}.qzeros"], ("I32",)), 1) + 1
    demand(zero.shape == scale.shape, "zero points")
    if config.get("sym") is True and not (zero == 8).all():
        raise Unclear("symmetric with other zero points")
    if (zero == 16).any():
        raise Unclear("a zero point of 0 in v1")
    index = numpy.arange(k) // (k // groups)
    if f"{name}.g_idx" in tensors:
        index = array(tensors[f"{name}.g_idx"], ("I32",), 1).view(numpy.int32).astype(numpy.int64)
        demand(index.shape == (k,) and ((-groups <= index) & (index < groups)).all(), "g_idx")
        index = index % groups
        if groups > 1 and (index == index[0]).all():
            raise Unclear("g_idx was never filled in")
    return Weight(codes - zero.T[:, index], numpy.ascontiguousarray(scale.T[:, index]))


def _awq(tensors, name, config):
    demand(config.get("bits") in (None, 4) and type(config.get("bits")) is not float, "bits")
    if str(config.get("version")).lower() != "gemm":
        raise Unclear("another version of AWQ")
    back = numpy.argsort(AWQ_ORDER)

    def columns(tensor):
        values = nibbles(array(tensor, ("I32",)), 1)
        return values.reshape(values.shape[0], -1, 8)[:, :, back].reshape(values.shape)

    codes = columns(tensors[f"{name}.qweight"]).T
    scale = floats(tensors[f"{name}.scales"]).T
    n, k = codes.shape
    demand(scale.shape[0] == n, "scales and weight differ")
    size = 128 if config.get("group_size") is None else config["group_size"]
    demand(type(size) is int and (size * scale.shape[1] == k or (size == -1 and scale.shape[1] == 1)), "group_size")
    demand(config.get("zero_point", True) in (True, False), "zero_point")
    if f"{name}.qzeros" not in tensors or config.get("zero_point", True) is False:
        raise Unclear("symmetric AWQ")
    zero = columns(tensors[f"{name}.qzeros"]).T
    demand(zero.shape == scale.shape, "zero points")
    return Weight(codes - spread(zero, k), spread(scale, k))


DECODERS = {
    "compressed-tensors": (_compressed_tensors, re.compile(r"(.+)\.weight_(?:packed|scale)")),
    "gptq": (_gptq, re.compile(r"(.+)\.qweight")),
    "awq": (_awq, re.compile(r"(.+)\.qweight")),
}


def decode(folder):
    """The model of a checkpoint."""
    model = Model(read_tensors(folder))
    config = parse((folder / "config.json").read_bytes())
    demand(isinstance(config, dict), "config.json")
    quantization = config.get("quantization_config")
    others = [p.name for p in folder.iterdir() if p.name in ("quantize_config.json", "quant_config.json")]
    if not isinstance(quantization, dict) or others or "text_config" in config or "compression_config" in config:
        raise Unclear("where the config is")
    method = quantization.get("quant_method")
    if not isinstance(method, str) or method not in DECODERS:
        raise Unclear("quant_method")
    one, pattern = DECODERS[method]
    modules = sorted({match[1] for name in model.tensors if (match := pattern.fullmatch(name))})
    for module in modules:
        try:
            weight = one(model.tensors, module, quantization)
        except KeyError as error:
            raise Bad(f"{error} is missing") from error
        if f"{module}.bias" in model.tensors:
            weight.bias = floats(model.tensors[f"{module}.bias"], 1)
        model.linears[module] = weight
    return model
