"""What the ops for experts are given in an engine, and that it is what vLLM's own path gives them.
For tests only."""

import torch
from engine import generate
from vllm.model_executor.layers.fused_moe import RoutedExperts

from prepack_vllm.experts import PrepackExpertsMethod


class Stacks:
    """What the ops for experts are given, by layer."""

    def __init__(self):
        self.layers = []
        self.ours = False

    def __call__(self, model):
        for layer in model.modules():
            if isinstance(layer, RoutedExperts):
                self.layers.append(self._of(layer))

    def _of(self, layer):
        method = layer.quant_method
        experts = method.moe_kernel.fused_experts
        self.ours = isinstance(method, PrepackExpertsMethod)
        weights = method.weights if self.ours else [layer.w13_weight, layer.w2_weight]
        scales = [experts.w1_scale, experts.w2_scale, experts.w1_zp, experts.w2_zp]
        biases = [experts.w1_bias, experts.w2_bias]
        return [None if one is None else raw(one) for one in (*weights, *scales, *biases)]


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone()


def assert_same_experts(packed, source, same_scales=True):
    """Of both: tokens, logprobs, and every byte that the op reads."""
    ours, own = Stacks(), Stacks()
    actual = generate(packed, inspect=ours)
    expected = generate(source, inspect=own)
    assert (ours.ours, own.ours) == (True, False)
    assert len(ours.layers) == len(own.layers) == 2
    for mine, theirs in zip(ours.layers, own.layers, strict=True):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if index < 2 or same_scales:
                assert (one is None) == (other is None)
                assert one is None or torch.equal(one, other)
    assert actual == expected
