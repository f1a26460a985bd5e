"""Tiny sound checkpoints, quantized by hand: a Llama or a mixture of experts in the formats that quantizers write."""

import json

import numpy
import raw

HIDDEN, INNER, KV, VOCABULARY, GROUP, EXPERTS = 64, 96, 32, 48, 32, 3
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def bf16(values):
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def from_bf16(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def fp8_table():
    """The value of each byte of F8_E4M3."""
    codes = numpy.arange(256)
    exponents, fractions = codes >> 3 & 15, codes & 7
    values = numpy.where(
        exponents == 0, fractions * 2.0**-9, (8 + fractions) * numpy.ldexp(1.0, exponents - 10)
    )
    values[codes & 127 == 127] = numpy.nan
    return numpy.where(codes & 128, -values, values)


def linears(layers, experts=0):
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, n in (("q_proj", HIDDEN), ("k_proj", KV), ("v_proj", KV), ("o_proj", HIDDEN)):
            yield f"{prefix}self_attn.{name}", n, HIDDEN
        for parent in [f"experts.{expert}." for expert in range(experts)] or [""]:
            for name, n, k in (("gate_proj", INNER, HIDDEN), ("up_proj", INNER, HIDDEN), ("down_proj", HIDDEN, INNER)):
                yield f"{prefix}mlp.{parent}{name}", n, k


def quantize(random, n, k, group, bits, symmetric):
    """(unsigned codes, zero points, scales) of a random weight."""
    weight = random.normal(0, 0.05, (n, k)).astype(numpy.float32).reshape(n, k // group, group)
    top = (1 << bits) - 1
    if symmetric:
        scale = numpy.abs(weight).max(2) / (top // 2)
        zero = numpy.full(scale.shape, top // 2 + 1)
    else:
        low, high = numpy.minimum(weight.min(2), 0), numpy.maximum(weight.max(2), 0)
        scale = (high - low) / top
        zero = numpy.clip(numpy.rint(-low / scale), 0, top)
    scale = from_bf16(bf16(scale)).reshape(scale.shape)
    codes = numpy.clip(numpy.rint(weight / scale[:, :, None]) + zero[:, :, None], 0, top)
    return codes.reshape(n, k).astype(numpy.uint32), zero.astype(numpy.uint32), scale


def words(nibbles, axis):
    """Eight values of 4 bits side by side along `axis` in a word, the first one lowest."""
    nibbles = numpy.moveaxis(nibbles, axis, -1)
    packed = nibbles.reshape(*nibbles.shape[:-1], -1, 8).astype(numpy.uint32) << (4 * numpy.arange(8, dtype=numpy.uint32))
    return numpy.ascontiguousarray(numpy.moveaxis(numpy.bitwise_or.reduce(packed, -1), -1, axis))


def ct_packed(random, name, n, k, form):
    codes, zero, scale = quantize(random, n, k, form["group"] or k, 4, form["symmetric"])
    tensors = {
        f"{name}.weight_packed": ("I32", (n, k // 8), words(codes, 1).tobytes()),
        f"{name}.weight_scale": ("BF16", scale.shape, bf16(scale).tobytes()),
        f"{name}.weight_shape": ("I64", (2,), numpy.array([n, k]).tobytes()),
    }
    if not form["symmetric"]:
        packed = words(zero, 0)
        tensors[f"{name}.weight_zero_point"] = ("I32", packed.shape, packed.tobytes())
    return tensors


def ct_int8(random, name, n, k, form):
    codes, _, scale = quantize(random, n, k, k, 8, True)
    return {
        f"{name}.weight": ("I8", (n, k), (codes.astype(int) - 128).astype(numpy.int8).tobytes()),
        f"{name}.weight_scale": ("BF16", (n, 1), bf16(scale).tobytes()),
    }


def ct_fp8(random, name, n, k, form):
    weight = random.normal(0, 0.05, (n, k))
    scale = numpy.abs(weight).max(1, keepdims=True) / 448
    scale = from_bf16(bf16(scale)).reshape(n, 1)
    table = fp8_table()
    positive = numpy.arange(127)
    places = numpy.searchsorted((table[positive][1:] + table[positive][:-1]) / 2, numpy.abs(weight / scale))
    codes = (positive[places] | numpy.where(weight < 0, 128, 0)).astype(numpy.uint8)
    return {
        f"{name}.weight": ("F8_E4M3", (n, k), codes.tobytes()),
        f"{name}.weight_scale": ("BF16", (n, 1), bf16(scale).tobytes()),
    }


def gptq(random, name, n, k, form):
    codes, zero, scale = quantize(random, n, k, GROUP, 4, form["symmetric"])
    order = random.permutation(k) if form.get("order") else numpy.arange(k)
    groups = (order // GROUP).astype(numpy.int32)  # of each input channel
    stored = numpy.empty_like(codes)
    for group in range(k // GROUP):
        stored[:, groups == group] = codes[:, group * GROUP : (group + 1) * GROUP]
    zeros = words((zero - 1) & 15, 0).reshape(n // 8, -1).T
    half = scale.T.astype(numpy.float16)
    return {
        f"{name}.qweight": ("I32", (k // 8, n), words(stored.T, 0).tobytes()),
        f"{name}.qzeros": ("I32", (k // GROUP, n // 8), numpy.ascontiguousarray(zeros).tobytes()),
        f"{name}.scales": ("F16", (k // GROUP, n), numpy.ascontiguousarray(half).tobytes()),
        f"{name}.g_idx": ("I32", (k,), groups.tobytes()),
    }


def awq(random, name, n, k, form):
    codes, zero, scale = quantize(random, n, k, GROUP, 4, False)
    columns = numpy.arange(n).reshape(-1, 8)[:, AWQ_ORDER].ravel()
    half = scale.T.astype(numpy.float16)
    return {
        f"{name}.qweight": ("I32", (k, n // 8), words(codes.T[:, columns], 1).tobytes()),
        f"{name}.qzeros": ("I32", (k // GROUP, n // 8), words(zero.T[:, columns], 1).tobytes()),
        f"{name}.scales": ("F16", (k // GROUP, n), numpy.ascontiguousarray(half).tobytes()),
    }


def ct_config(form, bits, kind, activations):
    weights = {
        "num_bits": bits, "type": kind, "symmetric": form.get("symmetric", True), "dynamic": False,
        "strategy": "group" if form.get("group") else "channel", "group_size": form.get("group"),
    }  # fmt: skip
    acts = {"num_bits": 8, "type": kind, "symmetric": True, "dynamic": True, "strategy": "token"} if activations else None
    group = {"targets": ["Linear"], "weights": weights, "input_activations": acts, "output_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": form["stored"], "config_groups": {"group_0": group},
        "ignore": ["lm_head"] + ["re:.*mlp.gate$"] * bool(form.get("experts")), "quantization_status": "compressed", "version": "0.19.0",
    }  # fmt: skip


def gptq_config(form):
    return {
        "quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": form["symmetric"], "checkpoint_format": "gptq",
        "desc_act": bool(form.get("order")), "lm_head": False, "meta": {"quantizer": ["gptqmodel:7.7.0"]},
    }  # fmt: skip


FORMS = {
    "ct-sym": dict(store=ct_packed, group=GROUP, symmetric=True, stored="pack-quantized"),
    "ct-asym": dict(store=ct_packed, group=GROUP, symmetric=False, stored="pack-quantized"),
    "ct-channel": dict(store=ct_packed, group=None, symmetric=True, stored="pack-quantized"),
    "ct-int8": dict(store=ct_int8, group=None, symmetric=True, stored="int-quantized"),
    "ct-fp8": dict(store=ct_fp8, group=None, symmetric=True, stored="float-quantized"),
    "moe-sym": dict(store=ct_packed, group=GROUP, symmetric=True, stored="pack-quantized", experts=EXPERTS),
    "moe-int8": dict(store=ct_int8, group=None, symmetric=True, stored="int-quantized", experts=EXPERTS),
    "moe-fp8": dict(store=ct_fp8, group=None, symmetric=True, stored="float-quantized", experts=EXPERTS),
    "gptq-sym": dict(store=gptq, symmetric=True),
    "gptq-asym": dict(store=gptq, symmetric=False),
    "gptq-order": dict(store=gptq, symmetric=True, order=True),
    "awq": dict(store=awq, symmetric=False),
}


def quantization(name):
    form = FORMS[name]
    if form["store"] is gptq:
        return gptq_config(form)
    if form["store"] is awq:
        return {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    kinds = {ct_int8: ("int", 8, True), ct_fp8: ("float", 8, True)}
    kind = kinds.get(form["store"], ("int", 4, False))
    return ct_config(form, kind[1], kind[0], kind[2])


def model_config(name, layers, bias):
    model = ("Qwen2ForCausalLM", "qwen2") if bias else ("LlamaForCausalLM", "llama")  # Qwen2 has those of q, k and v
    mixture = {}
    if "experts" in FORMS[name]:
        model = ("Qwen3MoeForCausalLM", "qwen3_moe")
        mixture = {
            "num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": INNER, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "norm_topk_prob": True, "attention_bias": bias,
        }  # fmt: skip
    return mixture | {
        "architectures": [model[0]], "model_type": model[1], "dtype": "bfloat16", "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "hidden_act": "silu", "vocab_size": VOCABULARY, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
        "rope_theta": 10000.0, "quantization_config": quantization(name),
    }  # fmt: skip


def write_seed(folder, name, seed, layers=2, shards=1, bias=False):
    """A sound checkpoint; the same name and shape with another seed gives another model of the same headers."""
    random = numpy.random.default_rng(seed)
    tensors = {}
    experts = FORMS[name].get("experts", 0)
    for module, n, k in linears(layers, experts):
        tensors |= FORMS[name]["store"](random, module, n, k, FORMS[name])
        if bias and module.endswith(("q_proj", "k_proj", "v_proj")):
            tensors[f"{module}.bias"] = ("BF16", (n,), bf16(random.normal(0, 0.1, n)).tobytes())
    for layer in range(layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            ones = bf16(1 + random.normal(0, 0.05, HIDDEN))
            tensors[f"model.layers.{layer}.{norm}.weight"] = ("BF16", (HIDDEN,), ones.tobytes())
        if experts:
            router = bf16(random.normal(0, 0.1, (experts, HIDDEN)))
            tensors[f"model.layers.{layer}.mlp.gate.weight"] = ("BF16", router.shape, router.tobytes())
    tensors["model.norm.weight"] = ("BF16", (HIDDEN,), bf16(1 + random.normal(0, 0.05, HIDDEN)).tobytes())
    for other in ("model.embed_tokens", "lm_head"):
        values = bf16(random.normal(0, 0.3, (VOCABULARY, HIDDEN)))
        tensors[f"{other}.weight"] = ("BF16", (VOCABULARY, HIDDEN), values.tobytes())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model_config(name, layers, bias), indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    write_shards(folder, tensors, shards)
    return folder


def write_shards(folder, tensors, shards):
    if shards == 1:
        raw.pack_file(tensors).write(folder / "model.safetensors")
        return
    names = sorted(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        own = names[shard::shards]
        raw.pack_file({name: tensors[name] for name in own}).write(folder / file)
        weight_map |= {name: file for name in own}
    total = sum(len(value) for _, _, value in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / raw.INDEX).write_text(json.dumps(index, indent=2))
