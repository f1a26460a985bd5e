"""Which modules of a folder make up a layer of vLLM, where vLLM gives it another name."""

from types import SimpleNamespace

import pytest
import torch
from vllm.model_executor.models.utils import WeightsMapper

from prepack_vllm import rotary
from prepack_vllm.errors import Unsupported
from prepack_vllm.layer_names import LayerNames, PredictionLayers

FIRST, SECOND = "model.layers.0", "model.layers.1"


def names_of(*packed, kept=(), plain=()):
    tensors = [SimpleNamespace(name=f"{name}.weight") for name in plain]
    modules = {name: SimpleNamespace(name=name) for name in packed}
    return LayerNames(SimpleNamespace(modules=modules, kept=dict.fromkeys(kept), tensors=tensors))


def test_a_layer_of_its_own_name():
    names = names_of(f"{FIRST}.mlp.down_proj", f"{FIRST}.mlp.shared.down_proj")
    assert names.of_layer(f"{FIRST}.mlp.down_proj", {}) == [f"{FIRST}.mlp.down_proj"]


@pytest.mark.parametrize("mapping", [{}, {"gate_up_proj": ["gate_proj", "up_proj"]}])
def test_layers_that_vllm_fuses_also_where_its_class_does_not_say_so(mapping):
    members = [f"{FIRST}.mlp.gate_proj", f"{FIRST}.mlp.up_proj"]
    assert names_of(*members).of_layer(f"{FIRST}.mlp.gate_up_proj", mapping) == members
    assert names_of(kept=members).of_layer(f"{FIRST}.mlp.gate_up_proj", mapping) == members


def test_a_fused_layer_that_is_stored_fused():
    name = f"{FIRST}.mlp.gate_up_proj"
    assert names_of(name).of_layer(name, {}) == [name]


def test_what_stands_in_front_of_the_names_of_a_draft_model():
    name = f"{FIRST}.mlp.down_proj"
    for names in (names_of(name), names_of(kept=[name]), names_of(plain=[name])):
        assert names.in_the_folder(f"draft_model.{name}") == name
        assert names.in_the_folder(name) == name
    own = f"draft_model.{name}"  # a checkpoint that has it itself
    for names in (names_of(own), names_of(kept=[own]), names_of(plain=[own])):
        assert names.in_the_folder(own) == own


def test_what_whisper_forgets_in_front_of_the_names_of_its_layers():
    encoder, decoder = "model.encoder.layers.0", "model.decoder.layers.0"
    members = [f"{decoder}.encoder_attn.{one}_proj" for one in "kv"]
    own = [f"{place}.self_attn.{one}_proj" for place in (encoder, decoder) for one in "qkv"]
    names = names_of(*members, f"{decoder}.encoder_attn.q_proj", *own, f"{encoder}.mlp.fc1")
    fused = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "kv_proj": ["k_proj", "v_proj"]}

    def of(layer):
        return names.of_layer(names.in_the_folder(layer), fused)

    assert of(".decoder.layers.0.layers.encoder_attn.kv_proj") == members
    assert of(".decoder.layers.0.layers.self_attn.qkv_proj") == own[3:]
    assert of(".encoder.layers.0.layers.self_attn.qkv_proj") == own[:3]
    assert of(".encoder.layers.0.layers.mlp.fc1") == [f"{encoder}.mlp.fc1"]
    unknown = ".encoder.layers.7.layers.mlp.fc1"
    assert names.in_the_folder(unknown) == unknown


def test_a_block_in_another_place_of_its_decoder_layer():
    names = names_of(f"{FIRST}.mamba.in_proj", f"{SECOND}.mamba.in_proj", f"{FIRST}.mlp.up_proj")
    assert names.of_layer(f"{FIRST}.mixer.in_proj", {}) == [f"{FIRST}.mamba.in_proj"]
    assert names.of_layer(f"{SECOND}.mixer.in_proj", {}) == [f"{SECOND}.mamba.in_proj"]
    assert names.of_layer(f"{FIRST}.mixer.out_proj", {}) == [f"{FIRST}.mixer.out_proj"]


def test_blocks_that_are_counted_on_behind_the_decoder_layers():
    names = names_of(f"{FIRST}.mamba.in_proj", f"{SECOND}.mamba.in_proj")
    assert names.of_layer("model.3.mixer.in_proj", {}) == [f"{SECOND}.mamba.in_proj"]


def test_of_several_places_the_one_whose_name_ends_alike():
    names = names_of(f"{FIRST}.mlp.up_proj", f"{FIRST}.mlp.shared_experts.up_proj")
    layer = f"{FIRST}.mtp_block.mlp.shared_experts.up_proj"
    assert names.of_layer(layer, {}) == [f"{FIRST}.mlp.shared_experts.up_proj"]
    layer = f"{FIRST}.other.up_proj"  # either could be meant
    assert names.of_layer(layer, {}) == [layer]


def test_a_layer_that_is_not_quantized_is_no_other():
    names = names_of(f"{FIRST}.mamba.out_proj", plain=[f"{FIRST}.self_attn.out_proj"])
    assert names.of_layer(f"{FIRST}.self_attn.out_proj", {}) == [f"{FIRST}.self_attn.out_proj"]


def test_experts_in_another_place():
    names = names_of(*(f"{FIRST}.block_sparse_moe.experts.{expert}.w1" for expert in range(12)))
    place = f"{FIRST}.block_sparse_moe.experts"
    assert names.of_experts(f"{FIRST}.mlp.experts", "w1") == place
    assert names.of_experts(place, "w1") == place


def test_shared_experts_are_not_the_experts():
    names = names_of(f"{FIRST}.mlp.shared_experts.gate_proj")
    assert names.of_experts(f"{FIRST}.mlp.experts", "gate_proj") == f"{FIRST}.mlp.experts"


def test_names_are_mapped():
    names = names_of(f"{FIRST}.mamba.in_proj", kept=[f"{FIRST}.mamba.out_proj"])
    assert names.of_layer(f"{FIRST}.mixer.in_proj", {}) == [f"{FIRST}.mamba.in_proj"]
    names.map(WeightsMapper(orig_to_new_substr={"mamba": "mamba.mamba"}))
    assert set(names.modules) == {f"{FIRST}.mamba.mamba.in_proj"}
    assert names.kept == {f"{FIRST}.mamba.mamba.out_proj"}
    assert names.of_layer(f"{FIRST}.mixer.in_proj", {}) == [f"{FIRST}.mamba.mamba.in_proj"]


def test_layers_that_predict_further_tokens():
    config = SimpleNamespace(num_hidden_layers=2, architectures=["DeepseekV3ForCausalLM"])
    layers = PredictionLayers(SimpleNamespace(text_config=config, architectures=None))
    found = ["model.layers.2.mlp.up_proj", "mtp.layers.0.mlp.up_proj", "model.mtp_layers.0.o_proj"]
    assert all(map(layers.have, found)) and not layers.are_the_model
    assert not any(map(layers.have, [f"{SECOND}.mlp.up_proj", "lm_head"]))
    assert PredictionLayers(SimpleNamespace(architectures=["DeepSeekMTPModel"])).are_the_model


# Llama 4: vLLM moves the rows of q and k.


def attention(last, layout="vllm-cpu/wna16", parts=("weight",), fused=()):
    name = f"{FIRST}.self_attn.{last}"
    return SimpleNamespace(name=name, layout=layout, parts=dict.fromkeys(parts), fused=fused)


def test_plain_rows_are_moved_by_the_model():
    assert rotary._is_of_attention(attention("q_proj"))
    assert not rotary._is_of_attention(attention("q_proj", "plain/bf16"))
    assert not rotary._is_of_attention(attention("o_proj"))


def test_what_cannot_be_moved_is_refused():
    with pytest.raises(Unsupported, match="qkv_proj: .*rows of q and k.*without --fuse"):
        rotary._is_of_attention(attention("qkv_proj", "plain/bf16", fused=("q_proj",)))
    with pytest.raises(Unsupported, match="q_proj: the layer has a bias"):
        rotary._is_of_attention(attention("q_proj", parts=("weight", "bias")))


def test_outputs_are_moved_as_vllm_moves_rows():
    from test_layers import of
    from vllm.model_executor.layers.linear import QKVParallelLinear
    from vllm.model_executor.models.llama4 import Llama4ForCausalLM

    config = SimpleNamespace(num_attention_heads=3, num_key_value_heads=2)
    rows = {"q_proj": 24, "k_proj": 16, "v_proj": 16}
    weights = {name: torch.randn(count, 4) for name, count in rows.items()}
    moved = [
        Llama4ForCausalLM.permute_qk_weight_for_rotary(
            SimpleNamespace(config=config), f"{FIRST}.self_attn.{name}.weight", weight
        )[1]
        for name, weight in weights.items()
    ]
    layer = of(QKVParallelLinear, head_size=8, v_head_size=8, num_heads=3, num_kv_heads=2)
    method = SimpleNamespace(output_order=None)
    rotary.order_outputs(method, layer, SimpleNamespace(past_the_model={"any"}))
    assert torch.equal(torch.cat(tuple(weights.values()))[method.output_order], torch.cat(moved))
