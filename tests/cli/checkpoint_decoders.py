"""What checkpoints of any format mean, in f32, read by hand from their tensors and what their configs say.

Nothing here comes from the rest of the project but tests/attack's reader of safetensors files. A decoder looks only
at what the loaders of its format look at, as strictly as they do: `Bad` is raised where one of them would fail, or
would take another meaning than the tensors have.
"""

import math
import pathlib
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from decode import Bad, demand, nibbles, parse, read_tensors  # noqa: E402
from seeds import AWQ_ORDER, fp8_table, from_bf16  # noqa: E402

from checkpoint_names import Names  # noqa: E402

E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)
FP8 = fp8_table().astype(numpy.float32)
TYPES = {
    "I8": numpy.int8, "U8": numpy.uint8, "F8_E4M3": numpy.uint8, "F8_E8M0": numpy.uint8, "I32": numpy.uint32,
    "I16": numpy.uint16, "I64": numpy.int64, "BF16": numpy.uint16, "F16": numpy.float16, "F32": numpy.float32,
}  # fmt: skip


def array(tensor, *kinds):
    dtype, shape, data = tensor
    demand(not kinds or dtype in kinds, f"dtype {dtype}, where {kinds} is expected")
    values = numpy.frombuffer(data, TYPES[dtype]).reshape(shape)
    return from_bf16(values.ravel()).reshape(shape) if dtype == "BF16" else values


def floats(tensor):
    values = array(tensor, "BF16", "F16", "F32").astype(numpy.float32)
    demand(numpy.isfinite(values).all(), "a scale is not finite")
    return values


def powers(tensor):
    """Exponents + 127 in bytes."""
    return numpy.ldexp(numpy.float32(1), array(tensor, "U8", "F8_E8M0").astype(numpy.int32) - 127)


def scales(tensor):
    if tensor[0] == "F8_E4M3":
        return FP8[array(tensor)]
    return powers(tensor) if tensor[0] in ("U8", "F8_E8M0") else floats(tensor)


def dense(words, bits, count):
    """`count` codes of so many bits along the last axis, each where the one before ends, also across words."""
    demand(words.shape[-1] == math.ceil(count * bits / 32), "the number of words does not fit that of codes")
    padded = numpy.concatenate([words, numpy.zeros((*words.shape[:-1], 1), words.dtype)], -1).astype(numpy.uint64)
    at = numpy.arange(count) * bits
    pairs = padded[..., at // 32] | padded[..., at // 32 + 1] << numpy.uint64(32)
    return (pairs >> (at % 32).astype(numpy.uint64) & numpy.uint64((1 << bits) - 1)).astype(numpy.int32)


def aligned(words, bits, count):
    """The same, as many in a word as fit."""
    each = 32 // bits
    demand(words.shape[-1] == math.ceil(count / each), "the number of words does not fit that of codes")
    shifts = (bits * numpy.arange(each)).astype(numpy.uint32)
    codes = words[..., None] >> shifts & numpy.uint32((1 << bits) - 1)
    return codes.reshape(*words.shape[:-1], -1)[..., :count].astype(numpy.int32)


def spread(values, shape, rows=None, columns=None):
    """Values of blocks to all elements [N, K]; without sizes, by the shapes, which must divide."""
    n, k = shape
    if values.ndim == 0 or values.size == 1:
        return numpy.full(shape, values.reshape(-1)[0])
    if values.ndim == 1:
        values = values[:, None]
    rows = rows or n // values.shape[0]
    columns = columns or k // values.shape[1]
    demand(values.shape == (math.ceil(n / rows), math.ceil(k / columns)), f"scales {values.shape} for {shape}")
    return numpy.repeat(numpy.repeat(values, rows, 0), columns, 1)[:n, :k]


def pairs(data):
    """Two e2m1 codes a byte, the even one low, along the last axis."""
    codes = numpy.stack([data & 15, data >> 4], -1)
    return E2M1[codes.reshape(*data.shape[:-1], -1)]


def fp4_weight(data, small, large=None):
    """`large`: of NVFP4, what all scales are multiplied by; its product with a scale is rounded first."""
    values = pairs(data)
    if large is not None:
        small = (small * large).astype(numpy.float32)
    return values * spread(small, values.shape)


# compressed-tensors


def _ct_packed(parts, weights, is_dense):
    bits = weights["num_bits"]
    unpack = dense if is_dense else aligned
    n, k = (int(size) for size in array(parts["weight_shape"], "I64", "I32"))
    scale = floats(parts["weight_scale"])
    codes = unpack(array(parts["weight_packed"], "I32"), bits, k)
    demand(codes.shape[0] == n, "weight_packed has other rows than weight_shape says")
    zero = numpy.int32(1 << bits - 1)
    if not weights.get("symmetric", True):
        zero = unpack(numpy.ascontiguousarray(array(parts["weight_zero_point"], "I32").T), bits, n).T
        demand(zero.shape == scale.shape, "zero points and scales have different shapes")
        zero = _ct_spread(zero, (n, k), parts, weights)
    return (codes - zero).astype(numpy.float32) * _ct_spread(scale, (n, k), parts, weights)


def _ct_spread(values, shape, parts, weights):
    n, k = shape
    strategy = weights.get("strategy")
    if strategy == "tensor":
        demand(values.size == 1, "one scale per tensor")
        return numpy.full(shape, values.reshape(-1)[0])
    if strategy == "channel":
        demand(values.size == n, "one scale per channel")
        return spread(values.reshape(n, 1), shape)
    if strategy == "block":
        rows, columns = weights["block_structure"]
        return spread(values, shape, rows, columns)
    demand(strategy in ("group", "tensor_group"), f"strategy {strategy}")
    size = weights["group_size"]
    demand(values.shape == (n, k // size) and k % size == 0, f"scales {values.shape} with groups of {size}")
    if "weight_g_idx" not in parts:
        return spread(values, shape)
    demand(weights.get("actorder") == "group", "weight_g_idx without actorder")
    return values[:, array(parts["weight_g_idx"], "I32").astype(numpy.int64)]


def compressed_tensors(parts, scheme, config):
    weights, form = scheme["weights"], scheme.get("format") or config["format"]
    demand(weights.get("actorder") != "group" or "weight_g_idx" in parts, "actorder without weight_g_idx")
    kind = (weights.get("type", "int"), weights["num_bits"])
    if form == "pack-quantized":
        demand(kind[0] == "int", "packed codes are integers")
        version = tuple(int(number) for number in config.get("version", "0.19.0").split(".")[:2])
        return _ct_packed(parts, weights, version >= (0, 18) or 32 % kind[1] == 0)
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
        demand(kind == ("float", 4), "FP4")
        large, group = None, 32
        if form.startswith("nv"):
            group = 16
            demand(parts["weight_scale"][0] == "F8_E4M3", "scales of NVFP4 are FP8")
            # The library divides a scale by it, and rounds.
            small = scales(parts["weight_scale"]) / floats(parts["weight_global_scale"]).reshape(-1)[0]
        else:
            small = powers(parts["weight_scale"])
        demand(weights["group_size"] == group, f"groups of {group}")
        return fp4_weight(array(parts["weight_packed"], "U8"), small.astype(numpy.float32), large)
    if form == "mxfp8-quantized":
        demand(weights.get("scale_dtype") == "torch.uint8" and weights["group_size"] == 32, "scales of MXFP8")
        codes = FP8[array(parts["weight"], "F8_E4M3")]
        return codes * spread(powers(parts["weight_scale"]), codes.shape)
    demand(form in ("int-quantized", "float-quantized", "naive-quantized"), f"format {form}")
    demand(kind[1] == 8 or kind[0] == "int", "bits")
    codes = FP8[array(parts["weight"], "F8_E4M3")] if kind[0] == "float" else array(parts["weight"], "I8")
    demand(kind[0] == "float" or numpy.abs(codes.astype(int) + 0.5).max() < 1 << kind[1] - 1, "codes need more bits")
    scale = floats(parts["weight_scale"])
    zero = 0
    if not weights.get("symmetric", True):
        zero = _ct_spread(array(parts["weight_zero_point"], "I8").astype(numpy.float32), codes.shape, parts, weights)
    return (codes.astype(numpy.float32) - zero) * _ct_spread(scale, codes.shape, parts, weights)


# GPTQ, AWQ and AutoRound


def gptq(parts, settings, added):
    """`added`: what a stored zero point lacks of its value, over whole words as GPTQModel adds it."""
    bits, size = settings["bits"], settings["group_size"]
    codes = numpy.ascontiguousarray(array(parts["qweight"], "I32").T)
    k = settings.get("k") or codes.shape[1] * 32 // bits
    codes = dense(codes, bits, k)
    n = codes.shape[0]
    scale = floats(parts["scales"])
    size = k if size == -1 else size
    demand(scale.shape == (math.ceil(k / size), n), f"scales {scale.shape} of [{n}, {k}] in groups of {size}")
    zero = array(parts["qzeros"], "I32")
    demand(zero.shape == (scale.shape[0], math.ceil(n * bits / 32)), f"zero points {zero.shape}")
    zero = zero.copy()
    if added and 32 % bits == 0:
        zero += numpy.uint32(sum(1 << at for at in range(0, 32, bits)))
    zero = dense(zero, bits, n)
    if added and 32 % bits:
        zero = (zero + 1) & (1 << bits) - 1
    if settings.get("sym"):
        demand((zero == 1 << bits - 1).all(), "symmetric, but zero points are not in the middle")
    group = numpy.arange(k) // size
    if "g_idx" in parts:
        found = array(parts["g_idx"], "I32").astype(numpy.int64)
        demand(found.shape == (k,) and (found < scale.shape[0]).all(), "g_idx")
        demand(settings.get("desc_act") or (found == group).all(), "groups are scattered, but desc_act is false")
        group = found
    return (codes - zero.T[:, group]).astype(numpy.float32) * scale.T[:, group]


def awq(parts, settings):
    back = numpy.argsort(AWQ_ORDER)

    def columns(tensor):
        values = nibbles(array(tensor, "I32"), 1)
        return values.reshape(values.shape[0], -1, 8)[:, :, back].reshape(values.shape).T

    demand(settings["bits"] == 4 and settings.get("zero_point") is True, "4 bits with zero points")
    codes, zero, scale = columns(parts["qweight"]), columns(parts["qzeros"]), floats(parts["scales"]).T
    n, k = codes.shape
    size = k if settings["group_size"] == -1 else settings["group_size"]
    demand(scale.shape == zero.shape == (n, k // size) and k % size == 0, f"scales {scale.shape} in groups of {size}")
    return (codes - spread(zero, (n, k))).astype(numpy.float32) * spread(scale, (n, k))


# FP8 and FP4 without compressed-tensors


def fp8(parts, config):
    codes = FP8[array(parts["weight"], "F8_E4M3")]
    found = [name for name in ("weight_scale_inv", "weight_scale") if name in parts]
    demand(len(found) == 1, f"scales {found}")
    block = config.get("weight_block_size")
    scale = scales(parts[found[0]])
    demand((block is None) == (scale.size == 1 and scale.ndim < 2), f"blocks {block}, but scales {scale.shape}")
    if config.get("activation_scheme") == "static":
        demand({"activation_scale", "input_scale"} & set(parts), "static activations without a scale")
    demand(parts[found[0]][0] != "F8_E8M0" or config.get("scale_fmt") == "ue8m0", "scale_fmt")
    return codes * (spread(scale, codes.shape, *block) if block else spread(scale, codes.shape))


def modelopt(parts, algorithm):
    weight = array(parts["weight"], "U8", "F8_E4M3")
    if algorithm in ("NVFP4", "W4A16_NVFP4"):
        demand(parts["weight_scale"][0] == "F8_E4M3", "scales of NVFP4 are FP8")
        demand(algorithm != "NVFP4" or "input_scale" in parts, "NVFP4 without the scale of its activations")
        return fp4_weight(weight, scales(parts["weight_scale"]), floats(parts["weight_scale_2"]).reshape(-1)[0])
    if algorithm == "MXFP4":
        return fp4_weight(weight, powers(parts["weight_scale"]))
    codes = FP8[weight]
    scale = scales(parts["weight_scale"] if "weight_scale" in parts else parts["weight_scale_inv"])
    expected = {
        "MXFP8": (codes.shape[0], codes.shape[1] // 32), "FP8": (), "FP8_PER_CHANNEL_PER_TOKEN": (codes.shape[0],),
    }.get(algorithm)  # fmt: skip
    if expected is None:
        demand(algorithm in ("FP8_PB_WO", "FP8_BLOCK_SCALES"), f"algorithm {algorithm}")
        return codes * spread(scale.reshape([-(-size // 128) for size in codes.shape]), codes.shape, 128, 128)
    demand(scale.shape == expected, f"scales {scale.shape} for {algorithm}")
    demand(algorithm != "FP8" or "input_scale" in parts, "FP8 without the scale of its activations")
    return codes * spread(scale, codes.shape)


# Whole checkpoints

KEYS = {
    "compressed-tensors": ("weight_packed", "weight_scale"), "gptq": ("qweight",), "awq": ("qweight",),
    "auto-round": ("qweight",), "fp8": ("weight_scale_inv", "weight_scale"),
    "modelopt": ("weight_scale", "weight_scale_inv"), "mxfp4": (), None: (),
}  # fmt: skip


def modules(tensors, keys):
    """Module → its parts, of all that have a part of these names beside their weight."""
    found = {}
    for name in tensors:
        module, _, last = name.rpartition(".")
        if last in keys:
            found[module] = {}
    for name, value in tensors.items():
        module, _, last = name.rpartition(".")
        if module in found:
            found[module][last] = value
    return found


def _one(method, parts, names, module, config):
    settings = names.settings(module)
    if method == "compressed-tensors":
        return compressed_tensors(parts, settings, config)
    if method == "gptq":
        form = config.get("checkpoint_format", "gptq")
        demand(form in ("gptq", "gptq_v2"), f"checkpoint_format {form}")
        return gptq(parts, settings, form == "gptq")
    if method == "awq":
        demand(config.get("version", "gemm").lower() == "gemm", "version")
        return awq(parts, settings)
    if method == "auto-round":
        form = config["packing_format"].removeprefix("auto_round:")
        if form == "auto_awq":
            return awq(parts, {**settings, "zero_point": True})
        demand(form in ("auto_gptq", "gptqmodel"), f"packing_format {form}")
        demand("g_idx" not in parts, "AutoRound has no index of groups")
        return gptq(parts, settings, form == "auto_gptq")
    if method == "fp8":
        return fp8(parts, config)
    return modelopt(parts, settings["quant_algo"])


def stacks(tensors, method, names, config):
    """Experts in stacked tensors: "X.expert" → weight [N, K]."""
    found = {}
    for name, value in tensors.items():
        if method == "mxfp4" and name.endswith("_blocks"):
            stacked = name.removesuffix("_blocks")
            blocks = array(value, "U8")
            weights = pairs(blocks.reshape(*blocks.shape[:2], -1))
            exponents = powers(tensors[stacked + "_scales"])
            demand(exponents.shape == blocks.shape[:3], "scales of experts")
            found |= {f"{stacked}.{expert}": one * spread(exponents[expert], one.shape)
                      for expert, one in enumerate(weights)}  # fmt: skip
        elif method == "fp8" and name.endswith(("_proj_scale_inv", "_proj_scale")):
            stacked = name.rpartition("_proj")[0] + "_proj"
            demand(stacked in tensors, f"{name} without its weights")
            codes = FP8[array(tensors[stacked], "F8_E4M3")]
            block = config["weight_block_size"]
            found |= {f"{stacked}.{expert}": one * spread(scales(value)[expert], one.shape, *block)
                      for expert, one in enumerate(codes)}  # fmt: skip
        elif method == "modelopt" and name.endswith("_proj_weight_scale"):
            stacked = name.removesuffix("_weight_scale")
            large = floats(tensors[name + "_2"])
            for expert, one in enumerate(array(tensors[stacked], "U8")):  # [K / 2, N]
                small = scales(value)[expert].T
                found[f"{stacked}.{expert}"] = fp4_weight(
                    numpy.ascontiguousarray(one.T), small, large.reshape(-1)[min(expert, large.size - 1)])
    return found


def quantization_of(folder):
    """(config.json, its quantization_config or None)"""
    config = parse((folder / "config.json").read_bytes())
    inner = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    return config, config.get("quantization_config") or inner.get("quantization_config")


def decode(folder, routers=True):
    """(method, module → weight in f32, name → (dtype, shape, bytes) of what belongs to no such module)"""
    tensors = read_tensors(folder)
    model, config = quantization_of(folder)
    method = config and config["quant_method"]
    demand(method in KEYS, f"quant_method {method}")
    if method is None:
        plain = {n.removesuffix(".weight"): floats(v) for n, v in tensors.items()
                 if len(v[1]) == 2 and v[0] in ("BF16", "F16", "F32")}  # fmt: skip
        if model.get("model_type") == "gpt2":  # Conv1D: [K, N]
            plain = {n: v if "wte" in n or "wpe" in n else v.T for n, v in plain.items()}
        if model.get("model_type") in ("gpt_oss", "qwen3_vl_moe"):  # [E, K, N]
            plain |= {f"{n}.{expert}": one.T for n, v in tensors.items() if n.endswith("_proj") and len(v[1]) == 3
                      for expert, one in enumerate(floats(v))}  # fmt: skip
        return method, plain, tensors
    names = Names(method, config, model)
    weights, taken = {}, set()
    for module, parts in modules(tensors, KEYS[method]).items():
        if parts.get("weight", ("", ""))[0] in ("BF16", "F16", "F32"):
            continue
        try:
            weights[module] = _one(method, parts, names, module, config)
        except KeyError as error:
            raise Bad(f"{module}: {error} is missing") from error
        except Bad as error:
            raise Bad(f"{module}: {error}") from error
        taken |= {f"{module}.{part}" for part in parts if part != "bias"}
    stacked = stacks(tensors, method, names, config)
    weights |= stacked
    taken |= {name for name in tensors for one in stacked if name.startswith(one.rpartition(".")[0])
              and not name.endswith("_bias")}  # fmt: skip
    rest = {name: value for name, value in tensors.items() if name not in taken}
    plain = [name.removesuffix(".weight") for name, value in rest.items()
             if name.endswith(".weight") and len(value[1]) == 2 and value[0] in ("BF16", "F16", "F32")]  # fmt: skip
    # A head that shares the embedding's weights is a linear layer of the model all the same.
    elsewhere = any("lm_head" in name or name.startswith("language_model.") for name in tensors)
    head = set() if elsewhere else {"lm_head"}
    plain = {name for name in {*plain, *head} if name not in weights and not names.is_embedding(name)}
    # Writers leave routers out of their lists where the class of the model has no linear layer for them.
    names.check_plain(sorted(name for name in plain if routers or not name.endswith(".gate")))
    return method, weights, rest
