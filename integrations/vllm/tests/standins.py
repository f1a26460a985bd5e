"""The consumers' ops in plain torch, for CPUs that cannot run the real ones. For tests only.

They read packed bytes as docs/layouts/ says (by reshaping, which shares nothing with the closed
forms of the package) and compute what the ops compute; tests/test_standins.py holds them against
what the real ops made. standins_experts.py has those for experts; install_standins.py registers
them.
"""

import numpy as np
import torch
from pack import pack_int4_w4a8, pack_int8_vnni, pack_pairs

from prepack_vllm.geometry import Geometry
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


def pack_mxfp4_codes(pairs):
    n, k = pairs.size(0), 2 * pairs.size(1)
    columns = nibbles(pairs).view(n // 32, 32, k // 2, 2).permute(0, 2, 1, 3)
    low, high = columns.reshape(n // 32, k // 2, 64).split(32, 2)
    return (low | high << 4).reshape(n, k // 2)


def mxfp4_weight(packed, scale):
    """[N, K] in f32."""
    n, k = packed.size(0), 2 * packed.size(1)
    columns = packed.view(n // 32, k // 2, 32)
    rows = torch.cat([columns & 15, columns >> 4], 2).view(n // 32, k // 2, 32, 2)
    codes = rows.permute(0, 2, 1, 3).reshape(n, k).long()
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([magnitudes, -magnitudes])[codes]
    exponents = scale.reshape(n // 32, k // 32, 32).permute(0, 2, 1).reshape(n, k // 32)
    return torch.ldexp(values, exponents.int().repeat_interleave(32, 1) - 127)


def convert_scale_packed(scales):
    experts, n, groups = scales.shape
    blocks = scales.view(experts, n // 32, 32, groups).transpose(2, 3)
    return blocks.reshape(scales.shape)


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
    if weight.dtype == torch.uint8:
        return pack_mxfp4_codes(weight)
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
