"""The ops that run the experts of a mixture in plain torch. For tests only: see standins.py."""

import torch
from standins import (
    add_bias,
    e4m3_values,
    fp8_product,
    from_pairs,
    int4_product,
    int8_product,
    mxfp4_weight,
    zentorch_product,
)


def silu_and_mul(y):
    gate, up = y.chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


def swiglu_oai(y, alpha, limit):
    gate = y[:, 0::2].clamp(max=limit)
    up = y[:, 1::2].clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + 1)


def run_experts(out, x, topk_weights, topk_ids, first, second, activation=silu_and_mul):
    """`first(rows, e)` and `second(rows, e)`: products with w13 and w2 of expert e, in f32."""
    total = torch.zeros(x.shape)
    for slot in range(topk_ids.size(1)):
        for expert in topk_ids[:, slot].unique().tolist():
            rows = topk_ids[:, slot] == expert
            inner = activation(first(x[rows], expert)).to(x.dtype)
            y = second(inner, expert) * topk_weights[rows, slot, None]
            total[rows] += y.to(x.dtype).float()
    out.copy_(total.to(out.dtype))


def fused_experts_cpu(
    out, x, w1, w2, topk_weights, topk_ids, method, w1_scale, w2_scale, w1_zero, w2_zero,
    a1_scale, block_size, w1_bias, w2_bias, alpha, limit, is_vnni, act_method=None,
):  # fmt: skip
    """`act_method`: from vLLM 0.33 on, 0 is SiLU and 1 swiglu-oai; before, alpha and limit say so."""
    oai = alpha is not None and limit is not None if act_method is None else act_method == 1
    assert act_method in (None, 0, 1) and (not oai or method == 4)
    assert is_vnni and topk_ids.dtype == torch.int32 and topk_weights.dtype == torch.float32
    assert a1_scale is None
    if method == 4:
        first, second = mxfp4_product(w1, w1_scale, w1_bias), mxfp4_product(w2, w2_scale, w2_bias)
        activation = (lambda y: swiglu_oai(y, alpha, limit)) if oai else silu_and_mul
        run_experts(out, x, topk_weights, topk_ids, first, second, activation)
        return
    assert (w1_bias, w2_bias, alpha, limit) == (None,) * 4
    stored = [(w1, w1_scale, w1_zero), (w2, w2_scale, w2_zero)]
    assert all(one is None or one.is_contiguous() for stack in stored for one in stack)
    first, second = (_experts_product(method, *stack, block_size) for stack in stored)
    if method == 3:  # the op takes the size of a group from w13
        assert x.size(1) // w1_scale.size(2) == _inner(w1_scale) // w2_scale.size(2)
    if method != 1:  # the op for 8-bit integers alone stays in f32 up to the activation
        first = _rounded(first, x.dtype)
    run_experts(out, x, topk_weights, topk_ids, first, second)


def mxfp4_product(weight, scale, bias):
    assert weight.dtype == scale.dtype == torch.uint8
    assert bias is None or bias.dtype == torch.float32

    def product(x, e):
        y = x.double() @ mxfp4_weight(weight[e], scale[e]).double().t()
        return add_bias(y.float(), None if bias is None else bias[e])

    return product


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
