"""What the quantization config of a checkpoint says of a module by its name, as the loaders of each format read it.

Loaders differ in how they match names. A config must mean the same to all of them: `Bad` where one would take a
quantized module for a plain one, or the other way round.
"""

import fnmatch
import re

from decode import Bad, demand

BLOCKS = re.compile(r"(^|\.)(layers|h|blocks)\.\d+\.")


class Names:
    def __init__(self, method, config, model):
        self.method, self.config, self.model = method, config, model

    @staticmethod
    def is_embedding(module):
        last = module.rpartition(".")[2]
        return "embed" in last or last in ("wte", "wpe")

    def settings(self, module):
        """Of a quantized module."""
        return getattr(self, "_" + self.method.replace("-", "_"))(module)

    def check_plain(self, plain):
        """Linear layers that are not quantized must not be declared so."""
        for module in plain:
            if self.method != "mxfp4" and self._declared(module):
                raise Bad(f"{module} is plain, but the config declares it quantized")

    def _declared(self, module):
        try:
            self.settings(module)
        except Bad:
            return False
        return True

    def _compressed_tensors(self, module):
        config = self.config
        for group in config["config_groups"].values():
            unknown = set(group) - {"targets", "weights", "input_activations", "output_activations", "format"}
            demand(not unknown, f"unknown keys {unknown} in a group")
            unknown = set(group["weights"]) - {
                "num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic", "actorder",
                "scale_dtype", "zp_dtype", "observer", "observer_kwargs",
            }  # fmt: skip
            demand(not unknown, f"unknown keys {unknown} in weights")
        demand(config.get("quantization_status") == "compressed", "quantization_status")

        def names(target):
            return re.match(target[3:], module) if target.startswith("re:") else target == module

        ignored = [entry for entry in config.get("ignore") or [] if names(entry)]
        demand(not ignored, f"{module} is in ignore")
        by_name = [group for group in config["config_groups"].values() if any(map(names, group["targets"]))]
        by_class = [group for group in config["config_groups"].values() if "Linear" in group["targets"]]
        # Libraries prefer names to classes, but each has its own order among names.
        demand(len(by_name) <= 1 and len(by_class) <= 1, f"{module} has several groups")
        demand(by_name or by_class, f"{module} has no group")
        return (by_name or by_class)[0]

    def _gptq(self, module):
        config = self.config
        for key in ("bits", "group_size", "sym", "desc_act"):
            demand(key in config, f"{key} is missing")
        demand(module != "lm_head" or config.get("lm_head"), "lm_head is not declared")
        if config.get("checkpoint_format", "gptq") == "gptq" and not config["sym"]:
            writers = (config.get("meta") or {}).get("quantizer") or []
            writers = [writers] if isinstance(writers, str) else writers
            known = any(writer.startswith("gptqmodel:") for writer in writers) or config.get("provider")
            demand(known, "GPTQModel refuses asymmetric v1 without meta.quantizer")
        found = {key: config[key] for key in ("bits", "group_size", "sym", "desc_act")}
        for pattern, rule in (config.get("dynamic") or {}).items():
            if re.match(pattern.removeprefix("-:").removeprefix("+:"), module):
                demand(not pattern.startswith("-:"), f"{module} is excluded by {pattern}")
                return {**found, **rule}
        return found

    def _awq(self, module):
        config = self.config
        skipped = config.get("modules_to_not_convert") or []
        demand(not any(entry in module for entry in skipped), f"{module} is in modules_to_not_convert")  # vLLM, AutoAWQ
        bounded = any(re.match(rf"(?:{e})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(e) for e in skipped)
        demand(not bounded, f"{module} is in modules_to_not_convert")  # transformers
        demand(BLOCKS.search(module), f"{module} is no part of a block")
        return {key: config[key] for key in ("bits", "group_size", "zero_point")}

    def _auto_round(self, module):
        config = self.config
        found = {key: config[key] for key in ("bits", "group_size", "sym")}
        extra = config.get("extra_config") or {}
        rule = extra.get(module)
        if rule is None:
            patterns = [p for p in extra if set(p) & set(r"*+?^$()[]{}|\\")]
            rule = next((extra[p] for p in patterns if re.search(p, module)), None)
        if rule is None:
            blocks = config.get("block_name_to_quantize") or config.get("to_quant_block_names")
            blocks = blocks.split(",") if isinstance(blocks, str) else blocks
            inside = any(module.startswith(one) for one in blocks) if blocks else BLOCKS.search(module)
            demand(inside, f"{module} is in no block")
        found |= rule or {}
        demand(found["bits"] < 16, f"{module} has 16 bits")
        return found

    def _fp8(self, module):
        skipped = self.config.get("modules_to_not_convert") or []
        bounded = any(re.match(rf"(?:{e})(?:(?<=\.)|(?=\.|$))", module) or module.endswith(e) for e in skipped)
        demand(not bounded, f"{module} is in modules_to_not_convert")  # transformers
        demand(module not in skipped, f"{module} is in modules_to_not_convert")  # vLLM
        demand("activation_scheme" in self.config, "activation_scheme is missing")
        return {}

    def _modelopt(self, module):
        skipped = self.config.get("ignore") or []
        named = [e for e in skipped if e == module or e in module or fnmatch.fnmatch(module, e)]
        demand(not named, f"{module} is in ignore: {named}")
        algorithm = self.config["quant_algo"].upper()
        if algorithm != "MIXED_PRECISION":
            return {"quant_algo": algorithm}
        layers = self.config["quantized_layers"]
        while module and module not in layers:
            module = module.rpartition(".")[0]
        demand(module, "no entry in quantized_layers")
        return {"quant_algo": layers[module]["quant_algo"].upper()}
