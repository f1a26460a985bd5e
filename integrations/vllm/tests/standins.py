"""The consumers' ops in plain torch, for CPUs that cannot run the real ones. For tests only.

They read packed bytes as docs/layouts/ says (by reshaping, which shares nothing with the closed
forms of the package) and compute what the ops compute; tests/test_standins.py holds them against
what the real ops made. `install` registers those that are missing here, and says which they are.
"""

import numpy as np
import torch
from pack import pack_int4_w4a8, pack_int8_vnni, pack_pairs

from prepack_vllm.geometry import Geometry
from prepack_vllm.kernels import has_op
from prepack_vllm.manifest import Activations

_SMALLEST_NORMAL = 2.0**-126
_DYNAMIC = Activations("int", symmetric=True, dynamic=True)


def to_half(values, dtype):
    """Rounded as the CPU's instruction does it: to bf16, subnormal inputs count as zero."""
    if dtype == torch.bfloat16:
        values = torch.where(values.abs() < _SMALLEST_NORMAL, 0.0, values)
    return values.to(dtype)


def nibbles(packed):
    """[..., bytes] to [..., 2 · bytes], the low half of a byte first."""
    data = packed.contiguous().view(torch.uint8)
    return torch.stack([data & 15, data >> 4], -1).flatten(-2)


def fma(a, b, c):
    """a · b + c, rounded once (but for the rarest of ties): products of f32 are exact in f64."""
    return (a.double() * b.double() + c.double()).float()


def exact_dot(a, b):
    """Sums of products of small integers, as f32."""
    return (a.double() @ b.double().t()).float()


def ordered_dot(x, w):
    """One f32 sum per output, k ascending. Products of 16-bit floats are exact in f32."""
    x, w = x.float(), w.float()
    total = torch.zeros(x.size(0), w.size(0))
    for k in range(x.size(1)):
        total += torch.outer(x[:, k], w[:, k])
    return total


def add_bias(y, bias):
    return y if bias is None else y + bias.float()


# vLLM, 4 bits, 16-bit activations.


def wna16_weight(weight, scales, zeros, dtype):
    k, n = weight.size(1) // 2, weight.size(0) * 16
    codes = nibbles(weight.view(torch.uint8).view(-1, k, 8))  # [N/16, K, 16]
    codes = codes.permute(0, 2, 1).reshape(n, k).float()
    groups = scales.size(0)
    zero = (
        torch.full((groups, n), 8.0) if zeros is None else nibbles(zeros.view(torch.uint8)).float()
    )
    size = k // groups
    zero = zero.t().repeat_interleave(size, 1)
    return to_half((codes - zero) * scales.float().t().repeat_interleave(size, 1), dtype)


def cpu_gemm_wna16(x, weight, y, scales, zeros, bias, pack_factor, isa_hint):
    assert pack_factor == 8 and isa_hint in ("vec", "amx")
    assert x.dtype == y.dtype == scales.dtype
    assert bias is None or bias.dtype == x.dtype
    w = wna16_weight(weight, scales, zeros, x.dtype)
    y.copy_(to_half(add_bias(ordered_dot(x, w), bias), x.dtype))


# vLLM, 8-bit activations.


def quantize_sgl(x):
    """Symmetric per token: codes around 128, without the 128, and scales [M, 1]."""
    amax = x.float().abs().amax(1, keepdim=True).clamp(min=1e-7)
    # (A number divided by a tensor would be the number times a reciprocal.)
    scaled = x.float() * torch.div(torch.tensor(127.0), amax)
    # Halves go to even in bf16, away from zero in f16.
    away = torch.sign(scaled) * torch.floor(scaled.abs() + 0.5)
    q = torch.round(scaled) if x.dtype == torch.bfloat16 else away
    return q, amax / 127.0


def int4_codes(weight):
    """[N, K] without zero points, and the sums behind each block."""
    rows, columns, size = weight.shape
    b = (size - 128) // 16
    data = weight[:, :, : 16 * b].reshape(rows, columns, b // 4, 2, 8, 4)  # k/4, n/16, n%8, k%4
    halves = torch.stack([data & 15, data >> 4], 4)  # …, n/16, n/8%2, n%8, k%4
    codes = halves.permute(0, 3, 4, 5, 1, 2, 6).reshape(rows * 32, columns * b)
    sums = weight[:, :, 16 * b :].contiguous().view(torch.int32)  # [N/32, K/b, 32]
    return codes.float(), sums, b


def int4_scaled_mm_cpu(x, weight, zeros, scales, bias):
    return int4_product(x, weight, zeros, scales, bias).to(x.dtype)


def int4_product(x, weight, zeros, scales, bias=None):
    """In f32."""
    assert bias is None or bias.dtype == torch.float32
    codes, sums, b = int4_codes(weight)
    n, k = codes.shape
    size = k // scales.size(1)
    q, s_a = quantize_sgl(x)
    y = torch.zeros(x.size(0), n) if bias is None else bias.expand(x.size(0), n).clone()
    for block in range(k // b):
        group = block * b // size
        piece = slice(block * b, (block + 1) * b)
        zero = zeros[:, group].reshape(n, 1).float()
        d = exact_dot(q[:, piece] + 128, codes[:, piece] - zero)
        d = (d.double() - 128 * sums[:, block].reshape(n).double()).float()
        y = fma(d * s_a, scales[:, group].reshape(n), y)
    return y


def int8_scaled_mm_with_quant(x, weight, scales, bias, out_dtype, is_vnni):
    assert is_vnni and x.dtype == torch.bfloat16
    return to_half(int8_product(x, weight, scales, bias), out_dtype)


def int8_product(x, weight, scales, bias=None):
    """In f32."""
    assert bias is None or bias.dtype == torch.float32
    n, k = weight.size(0), weight.size(1) - 4
    blocks = weight.contiguous().view(n // 32, 32 * (k + 4))
    codes = blocks[:, : 32 * k].reshape(n // 32, k // 4, 32, 4).permute(0, 2, 1, 3).reshape(n, k)
    sums = blocks[:, 32 * k :].contiguous().view(torch.int32).reshape(n)
    q, s_a = quantize_sgl(x)
    scales = scales.reshape(n)  # vLLM passes [N, 1]
    d = ((q + 128).double() @ codes.double().t() - sums.double()).float()
    y = d * s_a
    return y * scales if bias is None else fma(y, scales, bias)


# vLLM, weights of 8 or 16 bits in pairs of input channels.


def from_pairs(weight):
    n, k = weight.shape
    raw = weight.contiguous().view(torch.uint8 if weight.element_size() == 1 else torch.int16)
    return raw.view(n // 32, k // 2, 32, 2).permute(0, 2, 1, 3).reshape(n, k)


def e4m3_values(codes):
    """The kernel's own decoder: subnormals and zeros, too, as if they were normal numbers."""
    value = torch.ldexp(1 + (codes & 7).float() / 8, (codes >> 3 & 15).int() - 7)
    return torch.where(codes >> 7 == 1, -value, value)


def fp8_product(x, value, scale, columns):
    """With weights rounded to bf16, in f32. `scale`: [N, blocks]."""
    w = (value * scale.repeat_interleave(columns, 1)[:, : value.size(1)]).to(torch.bfloat16)
    return (x.double() @ w.double().t()).float()


def fp8_scaled_mm_cpu(x, weight, scales, block_size, bias, out_dtype, is_vnni):
    assert is_vnni and x.dtype == out_dtype == torch.bfloat16
    assert bias is None or bias.dtype == torch.float32
    rows, columns = block_size
    value = e4m3_values(from_pairs(weight))
    n, k = value.shape
    scale = scales.repeat_interleave(rows, 0)[:n]
    if x.size(0) > 4:
        return add_bias(fp8_product(x, value, scale, columns), bias).to(out_dtype)
    y = torch.zeros(x.size(0), n) if bias is None else bias.expand(x.size(0), n).clone()
    for block in range(scale.size(1)):
        piece = slice(block * columns, min(k, (block + 1) * columns))
        d = (x[:, piece].double() @ value[:, piece].double().t()).float()
        y = fma(d, scale[:, block], y)
    return y.to(out_dtype)


def weight_packed_linear(y, x, weight, bias, is_vnni):
    assert is_vnni and x.dtype == torch.bfloat16
    assert bias is None or bias.dtype == torch.float32
    w = from_pairs(weight).view(torch.bfloat16)
    y.copy_(add_bias((x.double() @ w.double().t()).float(), bias).to(y.dtype))


# vLLM's packers.


def awq_columns(words):
    """The columns of AWQ's words: a word holds columns 0 2 4 6 1 3 5 7."""
    stored = nibbles(words.contiguous().view(torch.uint8)).view(words.size(0), -1, 8)
    return stored[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(words.size(0), -1)


def gptq_rows(words):
    """[K/8, N] to [K, N]: a word holds eight rows."""
    return nibbles(words.t().contiguous().view(torch.uint8)).t()


def convert_weight_packed_scale_zp(qweight, qzeros, scales, algorithm):
    if qweight.dim() == 3:
        experts = zip(qweight, qzeros, scales, strict=True)
        packed = [convert_weight_packed_scale_zp(*expert, algorithm) for expert in experts]
        return tuple(torch.stack(parts) for parts in zip(*packed, strict=True))
    if algorithm == 0:  # AWQ
        codes, zeros = awq_columns(qweight).t().numpy(), awq_columns(qzeros).t().numpy()
    else:  # GPTQ, version 1: the stored zero point is one less
        codes = np.ascontiguousarray(gptq_rows(qweight).t().numpy())
        zeros = nibbles(qzeros.contiguous().view(torch.uint8)).t().numpy() + 1
    n, k = codes.shape
    dtype = "F16" if scales.dtype == torch.float16 else "BF16"
    geometry = Geometry(n, k, "group", k // scales.size(0), 1, False, _DYNAMIC, dtype)
    parts = pack_int4_w4a8(geometry, codes, scales.float().t().numpy(), zeros)
    return parts["weight"], parts["weight_zero_point"], parts["weight_scale"]


def convert_weight_packed(weight):
    if weight.dim() == 3:
        return torch.stack([convert_weight_packed(one) for one in weight])
    n, k = weight.shape
    geometry = Geometry(n, k, "channel", k, 1, True, _DYNAMIC, "BF16")
    scales = np.zeros((n, 1), np.float32)
    if weight.dtype == torch.int8:
        return pack_int8_vnni(geometry, weight.numpy(), scales, None)["weight"]
    raw = weight.view(torch.uint8 if weight.element_size() == 1 else torch.int16)
    return pack_pairs(geometry, raw.numpy(), scales, None)["weight"].view(weight.dtype)


# zentorch.


def zentorch_woq_linear(x, weight, scales, zeros, bias):
    codes = nibbles(weight.t().contiguous().view(torch.uint8)).float()
    n, k = codes.shape
    groups = scales.size(0)
    if zeros is None:
        codes = torch.where(codes > 7, codes - 16, codes)
        zero = torch.zeros(groups, n)
    else:
        assert zeros.dtype == torch.int8
        zero = zeros.float()
    size = k // groups
    w = (codes - zero.t().repeat_interleave(size, 1)) * scales.float().t().repeat_interleave(
        size, 1
    )
    return to_half(add_bias(ordered_dot(x, to_half(w, x.dtype)), bias), x.dtype)


def quantize_zentorch(x):
    x = x.float()
    amax = torch.where(x.isfinite(), x.abs(), 0.0).amax(1, keepdim=True)
    scale = torch.div(amax, 127.0).clamp(min=1e-10)
    return torch.round(x / scale).nan_to_num(0).clamp(-128, 127), scale


def zentorch_dynamic_qlinear(x, weight, scales, bias, *, zentorch_op_name=""):
    y = zentorch_product(x, weight, scales)
    y = add_bias(y, bias)
    return to_half(y, x.dtype) if weight.size(1) == x.size(1) else y.to(x.dtype)


def zentorch_product(x, weight, scales):
    """In f32."""
    q, s_a = quantize_zentorch(x)
    s_a = s_a.to(scales.dtype).float()
    if weight.size(1) == x.size(1):  # 8 bits
        return (exact_dot(q, weight) * scales.float()) * s_a
    codes = nibbles(weight.view(torch.uint8)).float()
    codes = torch.where(codes > 7, codes - 16, codes)
    size = codes.size(1) // scales.size(0)
    y = torch.zeros(x.size(0), codes.size(0))
    for group in range(scales.size(0)):
        piece = slice(group * size, (group + 1) * size)
        y = y + (exact_dot(q[:, piece], codes[:, piece]) * s_a) * scales[group].float()
    return y


def zentorch_woq_repack_weight(codes):
    low = codes.to(torch.int8).view(torch.uint8) & 15
    return (low[:, 0::2] | low[:, 1::2] << 4).contiguous().view(torch.int32)


# Experts of a mixture.


def run_experts(out, x, topk_weights, topk_ids, first, second):
    """`first(rows, e)` and `second(rows, e)`: products with w13 and w2 of expert e, in f32."""
    total = torch.zeros(x.shape)
    for slot in range(topk_ids.size(1)):
        for expert in topk_ids[:, slot].unique().tolist():
            rows = topk_ids[:, slot] == expert
            gate, up = first(x[rows], expert).chunk(2, 1)
            inner = (torch.nn.functional.silu(gate) * up).to(x.dtype)
            y = second(inner, expert) * topk_weights[rows, slot, None]
            total[rows] += y.to(x.dtype).float()
    out.copy_(total.to(out.dtype))


def fused_experts_cpu(
    out, x, w1, w2, topk_weights, topk_ids, method, w1_scale, w2_scale, w1_zero, w2_zero,
    a1_scale, block_size, w1_bias, w2_bias, alpha, limit, is_vnni,
):  # fmt: skip
    assert is_vnni and topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32
    assert (a1_scale, w1_bias, w2_bias, alpha, limit) == (None,) * 5
    stored = [(w1, w1_scale, w1_zero), (w2, w2_scale, w2_zero)]
    assert all(one is None or one.is_contiguous() for stack in stored for one in stack)
    first, second = (_experts_product(method, *stack, block_size) for stack in stored)
    if method == 3:  # the op takes the size of a group from w13
        assert x.size(1) // w1_scale.size(2) == _inner(w1_scale) // w2_scale.size(2)
    if method != 1:  # the op for 8-bit integers alone stays in f32 up to the activation
        first = _rounded(first, x.dtype)
    run_experts(out, x, topk_weights, topk_ids, first, second)


def _rounded(product, dtype):
    return lambda rows, expert: product(rows, expert).to(dtype).float()


def _inner(w1_scale):
    return w1_scale.size(1) * w1_scale.size(3) // 2


def _experts_product(method, weight, scale, zero, block_size):
    if method == 1:
        assert weight.dtype == torch.int8 and scale.numel() == weight.size(0) * weight.size(1)
        scale = scale.view(weight.size(0), -1)
        return lambda x, e: int8_product(x, weight[e], scale[e])
    if method == 3:
        assert weight.dim() == 4 and zero.dtype == torch.int8 and scale.shape == zero.shape
        return lambda x, e: int4_product(x, weight[e], zero[e], scale[e])
    assert method == 2 and weight.dtype == torch.float8_e4m3fn
    rows, columns = block_size
    n, k = weight.shape[1:]
    assert list(scale.shape[1:]) == [-(-n // rows), -(-k // columns)]

    def product(x, e):
        scales = scale[e].repeat_interleave(rows, 0)[:n]
        return fp8_product(x, e4m3_values(from_pairs(weight[e])), scales, columns)

    return product


def zentorch_fused_moe(
    output, x, w13, w2, w13_bias, w2_bias, topk_weights, topk_ids, skip_weighted, act,
    w13_scales=None, w2_scales=None, *, zentorch_op_name="",
):  # fmt: skip
    assert (w13_bias, w2_bias, skip_weighted, act) == (None, None, False, "silu")
    assert w13.dtype == w2.dtype
    assert w13_scales.dtype == (torch.bfloat16 if w13.dtype == torch.int32 else torch.float32)

    def product(weight, scales):
        weight = weight.view(torch.int8)
        return lambda rows, e: zentorch_product(rows, weight[e], scales[e])

    first, second = product(w13, w13_scales), product(w2, w2_scales)
    run_experts(output, x, topk_weights, topk_ids, first, second)


_OPS = {
    "_C": {
        "cpu_gemm_wna16(Tensor x, Tensor weight, Tensor(a!) y, Tensor scales, Tensor? zeros, "
        "Tensor? bias, SymInt pack_factor, str isa_hint) -> ()": cpu_gemm_wna16,
        "int4_scaled_mm_cpu(Tensor x, Tensor weight, Tensor zeros, Tensor scales, Tensor? bias) "
        "-> Tensor": int4_scaled_mm_cpu,
        "int8_scaled_mm_with_quant(Tensor x, Tensor weight, Tensor scales, Tensor? bias, "
        "ScalarType out_dtype, bool is_vnni) -> Tensor": int8_scaled_mm_with_quant,
        "fp8_scaled_mm_cpu(Tensor x, Tensor weight, Tensor scales, int[] block_size, Tensor? bias, "
        "ScalarType out_dtype, bool is_vnni) -> Tensor": fp8_scaled_mm_cpu,
        "weight_packed_linear(Tensor(a!) y, Tensor x, Tensor weight, Tensor? bias, bool is_vnni) "
        "-> ()": weight_packed_linear,
        "convert_weight_packed_scale_zp(Tensor qweight, Tensor qzeros, Tensor scales, "
        "int algorithm) -> (Tensor, Tensor, Tensor)": convert_weight_packed_scale_zp,
        "convert_weight_packed(Tensor weight) -> Tensor": convert_weight_packed,
        "fused_experts_cpu(Tensor(a!) out, Tensor hidden_states, Tensor w1, Tensor w2, "
        "Tensor topk_weights, Tensor topk_ids, int moe_comp_method, Tensor? w1_scale, "
        "Tensor? w2_scale, Tensor? w1_zero, Tensor? w2_zero, Tensor? a1_scale, int[]? block_size, "
        "Tensor? w1_bias, Tensor? w2_bias, float? alpha, float? limit, bool is_vnni) "
        "-> ()": fused_experts_cpu,
    },
    "zentorch": {
        "zentorch_woq_linear(Tensor x, Tensor weight, Tensor scales, Tensor? zeros, Tensor? bias) "
        "-> Tensor": zentorch_woq_linear,
        "zentorch_dynamic_qlinear(Tensor x, Tensor weight, Tensor scales, Tensor? bias, *, "
        "str zentorch_op_name='') -> Tensor": zentorch_dynamic_qlinear,
        "zentorch_woq_repack_weight(Tensor codes) -> Tensor": zentorch_woq_repack_weight,
        "zentorch_fused_moe(Tensor(a!) output, Tensor x, Tensor w13, Tensor w2, Tensor? w13_bias, "
        "Tensor? w2_bias, Tensor topk_weights, Tensor topk_ids, bool skip_weighted, str act, "
        "Tensor? w13_scales=None, Tensor? w2_scales=None, *, str zentorch_op_name='') "
        "-> ()": zentorch_fused_moe,
    },
}
_libraries: list[torch.library.Library] = []  # an op lives as long as its library object


def install() -> list[str]:
    """Registers the stand-ins of ops that are missing, and returns their names."""
    missing = []
    for namespace, ops in _OPS.items():
        for schema, function in ops.items():
            name = f"{namespace}::{schema.split('(')[0]}"
            if has_op(name):
                continue
            library = torch.library.Library(namespace, "FRAGMENT")
            library.define(schema)
            library.impl(schema.split("(")[0], function, "CPU")
            _libraries.append(library)
            missing.append(name)
    return missing


def register() -> None:
    """As a plugin of vLLM's, for the processes that it starts. run_tests makes it one."""
    from prepack_vllm.platform import load_ops

    load_ops()
    install()
