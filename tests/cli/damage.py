"""Damages real checkpoints in every way that once passed unnoticed, and counts what `prepack check` finds.

    PREPACK_TOOL=build/release/bin/prepack python tests/cli/damage.py [-v] [CHECKPOINT …]
    PREPACK_TOOL=build/release/bin/prepack python tests/cli/damage.py [-v] FOLDER … --layers 0 8 16

prints the tables of docs/check.md: for each kind of damage, on how many of the bundled checkpoints it could be done and
on how many it was found, and the same of those that hold layers of a trained decoder. Found is a warning or an error
that the sound checkpoint does not have. With --layers, damage to modules is done to each of these layers in turn, of
whole models as fixtures/make/bundled/trained_decoder.py makes them; other damage is left out. -v names what is not
found. Files are read and written by hand, so that nothing is shared with what is tested.
"""

import argparse
import functools
import json
import pathlib
import shutil
import subprocess
import tempfile

import harness
import numpy

CODES = ("weight_packed", "qweight", "weight")
SCALES = ("weight_scale", "weight_scale_inv", "scales")
HTML = b"<!DOCTYPE html><html><head><title>503 Service Unavailable</title></head><body><p>Try again later.</p>\n"
SEED = 23
TRAINED = "-smollm2-"


class Model:
    """The tensors of a checkpoint: name → [dtype, shape, bytearray]."""

    def __init__(self, folder, layer=None):
        self.folder = folder
        self.layer = layer  # whose modules are damaged; None: the first that has them
        self.config = json.loads((folder / "config.json").read_text())
        twice = folder / "consolidated.safetensors"  # the same model under Mistral's names, which check does not read
        left_out = harness.read_header(twice)[0] if twice.exists() else {}
        self.tensors = {
            n: [d, s, bytearray(b)] for n, (d, s, b) in harness.read_tensors(folder).items() if n not in left_out
        }
        self.random = numpy.random.default_rng(SEED)

    def modules(self):
        found = []
        for name in sorted(self.tensors):
            module, _, suffix = name.rpartition(".")
            if suffix in CODES and self.scales(module) and module.endswith("_proj"):
                found.append(module)
        return found

    def module(self, leaf):
        part = "" if self.layer is None else f".layers.{self.layer}."
        return next((m for m in self.modules() if m.endswith(leaf) and part in m), None)

    def codes(self, module):
        return next((f"{module}.{s}" for s in CODES if f"{module}.{s}" in self.tensors), None)

    def scales(self, module):
        return next((f"{module}.{s}" for s in SCALES if f"{module}.{s}" in self.tensors), None)

    def ending(self, suffix):
        """The tensor of the decoder, whatever stands before it in the models that have more than one part."""
        return next((n for n in sorted(self.tensors) if n.endswith("." + suffix) or n == suffix), None)

    def parts(self, module):
        return [n for n in self.tensors if n.startswith(module + ".")]

    def floats(self, name):
        dtype, shape, data = self.tensors[name]
        if dtype == "BF16":
            raw = numpy.frombuffer(bytes(data), numpy.uint16).astype(numpy.uint32) << 16
            return raw.view(numpy.float32).reshape(shape)
        if dtype == "F8_E8M0":
            exponents = numpy.frombuffer(bytes(data), numpy.uint8).astype(int) - 127
            return numpy.ldexp(numpy.float32(1), exponents).reshape(shape)
        kind = {"F16": numpy.float16, "F32": numpy.float32}[dtype]
        return numpy.frombuffer(bytes(data), kind).astype(numpy.float32).reshape(shape)

    def put(self, name, values):
        dtype = self.tensors[name][0]
        values = numpy.ascontiguousarray(values, numpy.float32)
        if dtype == "BF16":
            bits = values.view(numpy.uint32)
            data = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
        elif dtype == "F8_E8M0":
            data = numpy.clip(numpy.rint(numpy.log2(values)) + 127, 0, 254).astype(numpy.uint8)
        else:
            with numpy.errstate(over="ignore"):
                data = values.astype({"F16": numpy.float16, "F32": numpy.float32}[dtype])
        self.tensors[name][2] = bytearray(data.tobytes())

    def array(self, name):
        """The words or bytes of codes, as they are stored."""
        dtype, shape, data = self.tensors[name]
        kind = {"I32": numpy.uint32, "I16": numpy.uint16}.get(dtype, numpy.uint8)
        return numpy.frombuffer(bytes(data), kind).reshape(shape).copy()

    def put_array(self, name, values):
        self.tensors[name][2] = bytearray(numpy.ascontiguousarray(values).tobytes())

    def write(self, folder):
        folder.mkdir()
        for path in self.folder.iterdir():
            if path.suffix == ".json" and not path.name.endswith(".index.json"):
                shutil.copyfile(path, folder / path.name)
        data = {n: (d, s, bytes(b)) for n, (d, s, b) in self.tensors.items()}
        (folder / "model.safetensors").write_bytes(harness.safetensors_bytes(data))


KINDS = {}  # name → (share of what is changed, function); the function returns False where it cannot be done


def kind(name, share):
    def add(function):
        KINDS[name] = (share, function)
        return function

    return add


def fill(model, name, size, data):
    """Overwrites `size` bytes in the middle of a tensor."""
    tensor = model.tensors[name][2]
    if len(tensor) < 2 * size:
        return False
    start = len(tensor) // 2 // 4096 * 4096
    start = min(start, len(tensor) - size)
    tensor[start : start + size] = data
    return True


def remove(*parts):
    def function(model, parts=parts):
        names = [n for n in model.tensors if any(p in n for p in parts)]
        for name in names:
            del model.tensors[name]
        return bool(names)

    return function


for title, parts in {
    "no embedding": ("embed_tokens.",),
    "no output head": ("lm_head.",),
    "no final norm": ("model.norm.",),
    "no norm before the attention": ("input_layernorm.",),
    "no norm at all": ("norm.",),
    "no down_proj": ("down_proj.",),
}.items():
    kind(title, "a part")(remove(*parts))


@kind("no config.json", "a part")
def no_config(model):
    model.config = None


for title, name, share in (
    ("embedding of zeros", "embed_tokens.weight", 1),
    ("head of zeros", "lm_head.weight", 1),
    ("norm of zeros", "norm.weight", 1),
    ("half an embedding of zeros", "embed_tokens.weight", 0.5),
):

    @kind(title, "a tensor")
    def zeros(model, suffix=name, share=share):
        name = model.ending(suffix)
        if name is None:
            return False
        data = model.tensors[name][2]
        count = int(len(data) * share)
        data[:count] = bytes(count)


for title, name in (("embedding", "embed_tokens.weight"), ("head", "lm_head.weight")):

    @kind(f"{title} of another dtype's bytes", "a tensor")
    def other_dtype(model, suffix=name):
        name = model.ending(suffix)
        dtype = model.tensors[name][0] if name else None
        if dtype not in ("BF16", "F16"):  # no other dtype has as many bytes
            return False
        values = model.floats(name)
        model.tensors[name][0] = "F16" if dtype == "BF16" else "BF16"
        model.put(name, values)
        model.tensors[name][0] = dtype


@kind("norm × 1000", "a tensor")
def large_norm(model):
    name = model.ending("norm.weight")
    if name is None:
        return False
    model.put(name, model.floats(name) * 1000)


def scale_kind(title, change, leaf="up_proj"):
    @kind(title, "a module")
    def function(model):
        module = model.module(leaf)
        if module is None:
            return False
        name = model.scales(module)
        before = model.floats(name)
        after = change(model, module, before)
        if after is None or (after == before).all():
            return False
        model.put(name, after)


def of_sibling(model, module, scales):
    other = model.module("gate_proj")
    if other is None or model.tensors[model.scales(other)][1] != list(scales.shape):
        return None
    return model.floats(model.scales(other))


def rows_of_scales(scales, model, module):
    """The axis of output channels."""
    return 1 if model.scales(module).endswith(".scales") and scales.ndim == 2 and is_by_input(model, module) else 0


def is_by_input(model, module):
    return model.codes(module).endswith("qweight") and model.tensors[model.codes(module)][0] == "I32"


def moved(model, module, scales):
    return numpy.roll(scales, 1, rows_of_scales(scales, model, module)) if scales.ndim else None


scale_kind("scales of one module × 1000", lambda m, n, s: s * 1000)
scale_kind("scales of one module / 1000", lambda m, n, s: s / 1000)
scale_kind("scales of one module inverted", lambda m, n, s: 1 / s)
scale_kind("scales of another module", of_sibling)
scale_kind("scales transposed", lambda m, n, s: None if min(s.shape, default=1) < 2 else s.T.reshape(s.shape))
scale_kind("scales moved by one output channel", moved)


@kind("scales of all modules inverted", "the model")
def all_inverted(model):
    for module in model.modules():
        name = model.scales(module)
        model.put(name, 1 / model.floats(name))


@kind("scales of all modules × 1000", "the model")
def all_scaled(model):
    for module in model.modules():
        name = model.scales(module)
        if model.tensors[name][0] == "F16":
            return False
        model.put(name, model.floats(name) * 1000)


def code_kind(title, share, change, leaf="up_proj"):
    @kind(title, share)
    def function(model):
        module = model.module(leaf)
        if module is None:
            return False
        return change(model, model.codes(module))


def map_codes(change):
    def function(model, name):
        before = model.array(name)
        after = change(before)
        if after is None or (after == before).all():
            return False
        model.put_array(name, after)
        return True

    return function


def words(change):
    """`change` takes and gives 32-bit words of 8 nibbles."""

    def function(array):
        if array.dtype != numpy.uint32:
            return None
        nibbles = [array >> numpy.uint32(4 * i) & numpy.uint32(15) for i in range(8)]
        return sum(n << numpy.uint32(4 * i) for i, n in enumerate(change(nibbles)))

    return function


def reversed_words(array):
    if array.dtype == numpy.uint32:
        return words(lambda n: n[::-1])(array)
    return array.reshape(-1, 4)[:, ::-1].reshape(array.shape)


def other_sign(array):
    if array.dtype == numpy.uint8:
        return array ^ 0x80  # of FP8, this turns the weights around, which no statistic can tell
    return array ^ numpy.array(0x88888888 & numpy.iinfo(array.dtype).max, array.dtype)


def noise(model, count):
    return model.random.integers(0, 256, count, numpy.uint8).tobytes()


def repeated(model, name):
    data = model.tensors[name][2]
    return fill(model, name, 65536, bytes(data[:65536]))


for leaf in ("up_proj", "down_proj"):
    code_kind(f"4 KiB of zeros in {leaf}", "1.4 %", lambda m, n: fill(m, n, 4096, bytes(4096)), leaf)
    code_kind(f"4 KiB of HTML in {leaf}", "1.4 %", lambda m, n: fill(m, n, 4096, (HTML * 64)[:4096]), leaf)
    code_kind(f"64 KiB of zeros in {leaf}", "22 %", lambda m, n: fill(m, n, 65536, bytes(65536)), leaf)
    code_kind(f"64 KiB of noise in {leaf}", "22 %", lambda m, n: fill(m, n, 65536, noise(m, 65536)), leaf)
    code_kind(f"64 KiB twice in {leaf}", "22 %", repeated, leaf)
code_kind("codes of noise", "a module", lambda m, n: fill_all(m, n))
for leaf in ("up_proj", "gate_proj", "down_proj", "v_proj"):
    code_kind(f"words or bytes of {leaf} reversed", "a module", map_codes(reversed_words), leaf)
    code_kind(f"rows of {leaf} moved by one", "a module", map_codes(lambda a: numpy.roll(a, 1, 0)), leaf)
code_kind("nibbles of bytes swapped", "a module", map_codes(words(lambda n: [n[i ^ 1] for i in range(8)])))
code_kind("columns interleaved", "a module", map_codes(words(lambda n: [n[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)])))
code_kind("another signedness", "a module", map_codes(other_sign))
code_kind("rows moved by half", "a module", map_codes(lambda a: numpy.roll(a, a.shape[0] // 2, 0)))


def fill_all(model, name):
    data = model.tensors[name][2]
    data[:] = noise(model, len(data))
    return True


def gate_and_up(title, share, change):
    """`change` gets the tensors and the names of a part of gate_proj and of the same part of up_proj."""

    @kind(title, share)
    def function(model):
        up, gate = model.module("up_proj"), model.module("gate_proj")
        if up is None or gate is None:
            return False
        pairs = [(name, up + name[len(gate) :]) for name in model.parts(gate)]
        if any(b not in model.tensors or model.tensors[a][1] != model.tensors[b][1] for a, b in pairs):
            return False
        for a, b in pairs:
            change(model.tensors, a, b)
        return True


def copy(tensors, source, target):
    tensors[target][2] = bytearray(tensors[source][2])


def exchange(tensors, a, b):
    tensors[a], tensors[b] = tensors[b], tensors[a]


gate_and_up("up_proj is gate_proj", "a module", copy)
gate_and_up("gate_proj and up_proj exchanged", "two modules", exchange)


def peer_kind(title, change):
    """Changes the scales of one module of several of its kind, in other layers or experts."""

    @kind(title, "a module")
    def function(model):
        peers = [m for m in model.modules() if m.endswith("up_proj")]
        if len(peers) < 3:
            return False
        name = model.scales(peers[len(peers) // 2])
        before = model.floats(name)
        after = change(before)
        if (before == 0).any() or (after == before).all():
            return False
        model.put(name, after)


peer_kind("scales of one of several peers × 1000", lambda s: s * 1000)
peer_kind("scales of one of several peers inverted", lambda s: 1 / s)


@kind("up_proj of two layers exchanged", "two modules")
def other_layer(model):
    peers = [m for m in model.modules() if m.endswith("up_proj") and ".experts." not in m]
    if len(peers) < 2:
        return False
    first, last = peers[0], peers[-1]
    for name in model.parts(first):
        other = last + name[len(first) :]
        if other not in model.tensors or model.tensors[other][1] != model.tensors[name][1]:
            return False
        exchange(model.tensors, name, other)
    return True


def findings(folder):
    """The identifiers of warnings and errors."""
    result = subprocess.run([harness.TOOL, "check", folder, "--json"], capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    return {(f["id"], f["where"]) for f in report["findings"] if f["severity"] != "info"}


@functools.cache
def sound_findings(source):
    return findings(source)


def try_kind(source, name, scratch, layer=None):
    """None where the damage cannot be done, else the identifiers that the damaged checkpoint has more."""
    model = Model(source, layer)
    _, damage = KINDS[name]
    if damage(model) is False:
        return None
    folder = scratch / "damaged"
    model.write(folder)
    if model.config is None:
        config = json.loads((folder / "config.json").read_text())
        quantization = config.get("quantization_config") or config["text_config"]["quantization_config"]
        (folder / "quantization_config.json").write_text(json.dumps(quantization))
        (folder / "config.json").unlink()
    try:
        return sorted({i for i, _ in findings(folder) - sound_findings(source)})
    finally:
        shutil.rmtree(folder)


class Tally:
    """On how many checkpoints a kind of damage was done, and found, and by what."""

    def __init__(self):
        self.tried, self.found, self.identifiers, self.missed = 0, 0, {}, []

    def add(self, name, result):
        if result is None:
            return
        self.tried += 1
        self.found += bool(result)
        if not result:
            self.missed.append(name)
        for identifier in result:
            self.identifiers[identifier] = self.identifiers.get(identifier, 0) + 1

    def most(self):
        return ", ".join(f"`{i}`" for i in sorted(self.identifiers, key=lambda i: (-self.identifiers[i], i))[:3])


def try_all(name, sources, layers):
    """Of all, and of the trained ones."""
    every, trained = Tally(), Tally()
    for source in sources:
        for layer in layers:
            with tempfile.TemporaryDirectory() as scratch:
                result = try_kind(source, name, pathlib.Path(scratch), layer)
            place = source.name if layer is None else f"{source.name} {layer}"
            every.add(place, result)
            if TRAINED in source.name:
                trained.add(place, result)
    return every, trained


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoints", nargs="*", help="bundled ones by name, others by path; default: all bundled ones")
    parser.add_argument("--layers", nargs="+", type=int)
    parser.add_argument("-v", action="store_true")
    arguments = parser.parse_args()
    chosen = [harness.CHECKPOINTS / name for name in arguments.checkpoints] or sorted(harness.CHECKPOINTS.iterdir())
    of_modules = [name for name, (share, _) in KINDS.items() if share not in ("a part", "a tensor", "the model")]
    if arguments.layers:
        print("| damage | of | tried | found | as |\n|---|---|---|---|---|")
    else:
        print("| damage | of | tried | found | trained | found | as |\n|---|---|---|---|---|---|---|")
    for name in of_modules if arguments.layers else KINDS:
        every, trained = try_all(name, chosen, arguments.layers or [None])
        figures = [every.tried, every.found] + ([] if arguments.layers else [trained.tried, trained.found])
        print(f"| {name} | {KINDS[name][0]} | {' | '.join(map(str, figures))} | {every.most()} |", flush=True)
        if every.missed and arguments.v:
            print("   missed:", ", ".join(every.missed))


if __name__ == "__main__":
    main()
