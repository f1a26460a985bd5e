"""The quantization method `prepack`, as vLLM finds it by `quant_method` in config.json."""

import re
from pathlib import Path
from typing import Any

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import (
    get_quantization_config,
    register_quantization_config,
)
from vllm.model_executor.layers.quantization.base_config import (
    QuantizationConfig,
    QuantizeMethodBase,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.utils import WeightsMapper

from prepack_vllm.checks import check_folder
from prepack_vllm.errors import Malformed, Unsupported
from prepack_vllm.expert_grid import (
    DOWN,
    GATE,
    GATE_UP,
    UP,
    ExpertGrid,
    expert_names,
    names_of_stacked_experts,
)
from prepack_vllm.expert_stacks import find_stacks, grid_of
from prepack_vllm.experts import PrepackExpertsMethod
from prepack_vllm.heads import PackedHeadMethod
from prepack_vllm.layer_names import LayerNames, PredictionLayers
from prepack_vllm.layouts import layout_of
from prepack_vllm.layouts.vnni import Bf16Vnni
from prepack_vllm.linear import PrepackLinearMethod
from prepack_vllm.manifest import Manifest, PackedModule
from prepack_vllm.own_tensors import check_load_format
from prepack_vllm.plain import PlainFusedMethod
from prepack_vllm.rotary import order_outputs, past_the_model

logger = init_logger(__name__)

FORMAT_VERSION = 2
# Weights like those of any unquantized layer, which vLLM loads itself.
_PLAIN = ("plain/bf16", "plain/bf16-conv1d")


@register_quantization_config("prepack")
class PrepackConfig(QuantizationConfig):
    def __init__(self, target: str):
        super().__init__()
        self.target = target
        self.manifest: Manifest | None = None
        self.names: LayerNames | None = None
        self.prediction: PredictionLayers | None = None
        self.taken: set[str] = set()  # modules that a layer was made for
        self._source: QuantizationConfig | None = None

    @classmethod
    def get_name(cls) -> str:
        return "prepack"

    @classmethod
    def get_min_capability(cls) -> int:
        return -1

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        # Which of them it is, the manifest says, and PrepackLinearMethod checks.
        return [torch.bfloat16, torch.float16, torch.float32]

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PrepackConfig":
        version = config.get("format_version")
        if version != FORMAT_VERSION:
            raise Unsupported(
                "config.json",
                "quantization_config is of another version",
                found=version,
                expected=FORMAT_VERSION,
                hint="Pack the checkpoint again with a prepack that suits this plugin",
            )
        return cls(str(config.get("target")))

    def maybe_update_config(
        self, model_name: str, hf_config: Any = None, revision: str | None = None
    ) -> None:
        """vLLM's first word about the folder: the place to find out what is wrong with it."""
        self.manifest = check_folder(Path(model_name))
        if self.manifest.target != self.target:
            raise Malformed(
                model_name,
                "config.json and prepack.json name different targets",
                found=self.target,
                expected=self.manifest.target,
            )
        self.manifest = past_the_model(self.manifest, hf_config)
        self.names = LayerNames(self.manifest)
        self.prediction = PredictionLayers(hf_config)
        count = len(self.manifest.modules)
        logger.info("%s: %d packed modules for %s", model_name, count, self.target)

    @staticmethod
    def get_checkpoint_weight_mapper() -> WeightsMapper:
        """From the names of a packed folder's tensors to those that vLLM's models look for."""
        mapper = QuantizationConfig.get_checkpoint_weight_mapper()
        return mapper | WeightsMapper(
            orig_to_new_regex={
                # gpt-oss takes experts one by one under these names.
                re.compile(r"\.experts\.gate_up_proj\.(\d+)\."): r".experts.\1.w13_",
                re.compile(r"\.experts\.down_proj\.(\d+)\."): r".experts.\1.w2_",
            }
        )

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """From the checkpoint's names of modules to those of vLLM's model."""
        if self.names is not None:
            self.names.map(hf_to_vllm_mapper)

    @property
    def modules(self) -> dict[str, PackedModule]:
        """By the names of vLLM's model."""
        return {} if self.names is None else self.names.modules

    @property
    def kept(self) -> set[str]:
        return set() if self.names is None else self.names.kept

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        if self.manifest is None or self.names is None:
            raise Unsupported(prefix, "vLLM has not told the plugin which folder it loads")
        check_load_format(self.manifest)
        prefix = self.names.in_the_folder(prefix)
        if isinstance(layer, RoutedExperts):
            return self._experts(layer, prefix)
        names = self.names.of_layer(prefix, self.packed_modules_mapping)
        packed = [self.modules[name] for name in names if name in self.modules]
        if not packed or all(module.layout in _PLAIN for module in packed):
            self.taken.update(module.name for module in packed)
            if packed and packed[0].recut:
                return PlainFusedMethod(self.manifest, packed[0], self._check_taken)
            return self._not_packed(layer, prefix, names)
        if len(packed) != len(names):
            other = next(name for name in names if name not in self.modules)
            raise Unsupported(
                other,
                f"the module is not packed, but vLLM fuses it with {packed[0].name}, which is",
                hint="Pack again with --fallback dequantize, or with a quantized "
                "checkpoint that treats both alike",
            )
        if isinstance(layer, ParallelLMHead):
            method = self.head_method(prefix)
            if method is not None:
                return method
            _check_head(layer, packed[0])
        elif not isinstance(layer, LinearBase):
            raise Unsupported(prefix, f"a {type(layer).__name__} cannot be packed")
        for module in packed:
            if layout_of(module).kernel.experts_only:
                raise Unsupported(
                    module.name,
                    f"vLLM has no op for linear layers in {module.layout}",
                    hint="Pack again with --fallback dequantize, or load the source",
                )
        self.taken.update(module.name for module in packed)
        method = PrepackLinearMethod(self.manifest, packed, self._check_taken)
        order_outputs(method, layer, self.manifest)
        return method

    def head_method(self, name: str) -> PackedHeadMethod | None:
        """For the head of that name, if it is one that was not quantized and packed nevertheless."""
        assert self.manifest is not None and self.names is not None
        module = self.modules.get(self.names.in_the_folder(name))
        if module is None or layout_of(module).kernel is not Bf16Vnni:
            return None
        self.taken.add(module.name)
        return PackedHeadMethod(self.manifest, module, self._check_taken)

    def _experts(self, layer: RoutedExperts, prefix: str) -> QuantizeMethodBase | None:
        assert self.manifest is not None and self.names is not None
        place = self.names.of_experts(prefix, layer.ckpt_gate_proj_name)
        stacks = find_stacks(self.modules, place)
        if stacks is not None:
            self.taken.update(stack.name for stack in stacks)
            grid = grid_of(stacks, layer.moe_config.activation == MoEActivation.SWIGLUOAI)
            return PrepackExpertsMethod(layer.moe_config, self.manifest, grid, self._check_taken)
        names = self._names_of_experts(layer, place)
        all_names = [name for shard in names.values() for name in shard]
        packed = [self.modules[name] for name in all_names if name in self.modules]
        kept = [name for name in all_names if name in self.kept]
        plain = all(module.layout in _PLAIN for module in packed)  # or there is none
        others = kept if plain else [name for name in all_names if name not in self.modules]
        if packed and others:
            raise Unsupported(
                others[0],
                f"the module is not packed, but vLLM runs it together with {packed[0].name}, "
                "which is",
                hint="Pack again with a quantized checkpoint that treats all experts alike",
            )
        if plain:
            self._check_strangers(place, all_names)
            self.taken.update(module.name for module in packed)
            return self._source_config().get_quant_method(layer, prefix) if kept else None
        self.taken.update(module.name for module in packed)
        grid = ExpertGrid(
            {shard: [self.modules[one] for one in modules] for shard, modules in names.items()}
        )
        return PrepackExpertsMethod(layer.moe_config, self.manifest, grid, self._check_taken)

    def _names_of_experts(self, layer: RoutedExperts, prefix: str) -> dict[str, list[str]]:
        experts = layer.moe_config.num_logical_experts
        together = names_of_stacked_experts(prefix, experts)
        # Only with this activation are its rows known to alternate, and not to be halves.
        alternate = layer.moe_config.activation == MoEActivation.SWIGLUOAI
        if alternate and together[GATE_UP][0] in self.modules:
            return together
        projections = {
            GATE: layer.ckpt_gate_proj_name,
            UP: str(layer.ckpt_up_proj_name),
            DOWN: layer.ckpt_down_proj_name,
        }
        return expert_names(prefix, projections, experts)

    def _check_strangers(self, prefix: str, names: list[str]) -> None:
        """Without a packed module that vLLM's layer asks for, there must be no other below it."""
        known = set(names)
        for name, module in self.modules.items():
            if name.startswith(f"{prefix}.") and name not in known:
                raise Unsupported(
                    module.name,
                    "the packed module is none that vLLM's experts consist of",
                    expected=f"one linear layer per expert, such as {names[0]}",
                    hint="Pack a checkpoint that stores each expert by itself",
                )

    def _not_packed(
        self, layer: torch.nn.Module, prefix: str, names: list[str]
    ) -> QuantizeMethodBase | None:
        if any(name in self.kept for name in names):
            return self._source_config().get_quant_method(layer, prefix)
        return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None

    def _source_config(self) -> QuantizationConfig:
        """vLLM's own method for what the quantizer stored and no layout took."""
        if self._source is None:
            assert self.manifest is not None
            source = dict(self.manifest.source_quantization)
            name = str(source.get("quant_method", ""))
            name = "inc" if name in ("auto-round", "intel/auto-round") else name
            self._source = get_quantization_config(name).from_config(source)
            self._source.packed_modules_mapping = self.packed_modules_mapping
        return self._source

    def _check_taken(self) -> None:
        """When the first layer is loaded, the whole model has been made."""
        from vllm.distributed import get_pp_group

        assert self.prediction is not None
        if get_pp_group().world_size > 1 or self.prediction.are_the_model:
            return  # a stage has its layers only, and so has a model that predicts further tokens
        unused = sorted({module.name for module in self.modules.values()} - self.taken)
        unused = [name for name in unused if not self.prediction.have(name)]
        if unused:
            raise Unsupported(
                unused[0],
                "the packed module belongs to no layer of vLLM's model"
                + (f", and {len(unused) - 1} more" if len(unused) > 1 else ""),
                hint="vLLM's class for this model names or fuses its layers in another way",
            )


def _check_head(layer: ParallelLMHead, module: PackedModule) -> None:
    if layer.tp_size > 1 or layer.num_embeddings_padded != module.n:
        raise Unsupported(
            module.name,
            "a packed head runs without tensor parallelism only, and where vLLM does not pad it",
            found=f"{module.n} of {layer.num_embeddings_padded} tokens on {layer.tp_size} ranks",
            hint="Quantize the model without its head",
        )
