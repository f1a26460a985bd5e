"""What the command line tests share: running the tool, reading and writing safetensors by hand."""

import functools
import hashlib
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "fixtures" / "checkpoints"
TOOL = os.environ["PREPACK_TOOL"]
ONEDNN_MODULE = pathlib.Path(TOOL).with_name("prepack_onednn.so")  # not there where oneDNN is linked in

SANITIZERS = os.environ.get("PREPACK_SANITIZERS", "")  # that the tool is built with
# Of random choices: tools/soak gives one after the other; without it every run of a test is the same.
SEED = os.environ.get("PREPACK_TEST_SEED")

W4A16 = ["ct-w4a16-g128-sym", "ct-w4a16-g32-asym", "ct-w4a16-channel-sym", "ct-w4a16-g128-sharded"]
KERNEL_TARGETS = ["vllm-cpu", "zentorch", "vllm-arm", "onednn"]
TARGETS = [target for target in KERNEL_TARGETS if target != "vllm-arm"]  # that take every width of activations
EXPERT_TARGETS = ["kt"]  # read by kernels, too, that run nothing but the experts of a mixture
CHECKPOINT_TARGETS = [
    "compressed-tensors",
    "compressed-tensors-0.17",
    "gptq",
    "gptq-v2",
    "awq",
    "auto-round",
    "auto-round-v2",
    "auto-round-awq",
    "fp8",
    "mxfp4",
    "modelopt",
    "bf16",
]
# What is odd about real checkpoints, and check warns of.
WARNED = {
    # Every module on purpose in another way.
    "quark-integers": ["module-siblings-differ", "module-siblings-differ"],
    "quark-first": ["module-siblings-differ", "module-siblings-differ"],
    "quark-padded": ["module-siblings-differ"],
    # One of gate and up was left unquantized on purpose.
    "ct-mixed": ["module-siblings-differ"],
    # AutoRound 0.15 stored other zero points than it declared.
    "ar-old-model-free-w4-asym": ["autoround-model-free-zeros"],
}


@functools.cache
def built_without_onednn():
    """One that is there and does not load is no reason to skip anything."""
    report = subprocess.run([TOOL, "doctor"], capture_output=True, text=True, check=False).stdout
    return "prepack was built without it" in report


def needs_onednn(test):
    return unittest.skipIf(built_without_onednn(), "built without oneDNN")(test)


needs_onednn_module = unittest.skipUnless(ONEDNN_MODULE.exists(), "oneDNN is no module of this build")


def read_header(path):
    """(header without __metadata__, start of the data) of a safetensors file."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, 8 + length


def read_tensors(folder):
    """name → (dtype, shape, bytes) of every tensor of a folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        header, start = read_header(path)
        data = path.read_bytes()
        for name, info in header.items():
            begin, end = info["data_offsets"]
            tensors[name] = (info["dtype"], info["shape"], data[start + begin : start + end])
    return tensors


def manifest(folder):
    return json.loads((folder / "prepack.json").read_text())


def hashes(folder):
    """tensor → hash, of all tensors in the manifest."""
    of = manifest(folder)
    found = {t["tensor"]: t["xxh3_128"] for t in of["tensors"]}
    for module in of["modules"].values():
        for part in module["parts"].values():
            found[part["tensor"]] = part["xxh3_128"]
    return found


def safetensors_bytes(tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def part_name(out, index, count):
    return out.with_name(f"{out.name}.part-{index:05}-of-{count:05}")


def random_checkpoint(folder, random, megabytes=16):
    """A checkpoint of any format and shape, by the generator of the benchmarks."""
    generator = pathlib.Path(TOOL).parent / "generate_checkpoint"
    usage = subprocess.run([generator, "--help"], capture_output=True, text=True, check=True).stdout
    form = random.choice(re.search(r"--format TEXT:\{(.*?)\}", usage)[1].split(","))
    unit = 1024 if form == "awq-gemv" else 128  # what K must be a multiple of
    hidden, intermediate = (unit * random.randint(1, 2048 // unit) for _ in range(2))
    experts = random.choice((0, 0, 2, 5))
    layer = 2.5 * hidden * hidden + 3 * hidden * intermediate * max(1, experts)
    shape = {
        "format": form, "hidden": hidden, "intermediate": intermediate, "experts": experts,
        "layers": max(1, round(random.uniform(0.2, 1) * megabytes * 2e6 / layer)),
        "shards": random.randint(1, 4), "seed": random.randint(0, 10**9),
    }
    options = [word for name, value in shape.items() for word in (f"--{name}", str(value))]
    subprocess.run([generator, folder, *options], check=True)
    return folder, " ".join(options)


def random_options(random):
    """Options of `prepack convert` that suit every checkpoint."""
    options = ["-t", random.choice(TARGETS), "--jobs", str(random.randint(1, 8))]
    options += ["--fallback", "dequantize"]
    for option in ("--fuse", "--no-flush"):
        if random.random() < 0.4:
            options.append(option)
    if random.random() < 0.3:
        options += ["--scales", "exact"]
    return options


def copy_config_of_modules(checkpoint, folder):
    """The config.json of a bundled checkpoint, for a folder of modules that are no whole model: none is named."""
    config = json.loads((CHECKPOINTS / checkpoint / "config.json").read_text())
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))


def large_checkpoint(folder, layers, n=4096, k=4096):
    """A sound W4A16 checkpoint of `layers` modules, large enough to be caught half-way."""
    random = numpy.random.default_rng(7)
    tensors = {}
    for layer in range(layers):
        module = f"model.layers.{layer}.mlp.up_proj"
        codes = random.integers(0, 2**32, (n, k // 8), dtype=numpy.uint32)
        scales = numpy.full((n, k // 128), 0x3C00, dtype=numpy.uint16)
        shape = numpy.array([n, k], dtype=numpy.int64)
        tensors[module + ".weight_packed"] = ("I32", [n, k // 8], codes.tobytes())
        tensors[module + ".weight_scale"] = ("BF16", [n, k // 128], scales.tobytes())
        tensors[module + ".weight_shape"] = ("I64", [2], shape.tobytes())
    folder.mkdir()
    copy_config_of_modules("ct-w4a16-g128-sym", folder)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


def sparse_checkpoint(folder, shards, layers, n, k):
    """A W4A16 checkpoint whose codes are holes: `layers` modules in each shard, with one scale per
    channel. It takes next to no disk, whatever its size."""
    folder.mkdir()
    copy_config_of_modules("ct-w4a16-channel-sym", folder)
    scales = numpy.full(n, 0x3C00, dtype=numpy.uint16).tobytes()
    shape = numpy.array([n, k], dtype=numpy.int64).tobytes()
    weight_map = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        header, small, offset = {}, [], 0
        for layer in range(layers):
            module = f"model.layers.{shard * layers + layer}.mlp.up_proj"
            for part, dtype, dims, size, data in (
                ("weight_packed", "I32", [n, k // 8], n * k // 2, None),
                ("weight_scale", "BF16", [n, 1], len(scales), scales),
                ("weight_shape", "I64", [2], len(shape), shape),
            ):
                tensor = f"{module}.{part}"
                weight_map[tensor] = name
                header[tensor] = {
                    "dtype": dtype, "shape": dims, "data_offsets": [offset, offset + size]
                }
                if data is not None:
                    small.append((offset, data))
                offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / name, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for at, data in small:
                file.seek(8 + len(text) + at)
                file.write(data)
            file.truncate(8 + len(text) + offset)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def gaussian(module):
    """The figures of a verified module with Gaussian activations, of those with the most rows."""
    inputs = [i for i in module["gemm"]["inputs"] if i["input"] == "gaussian"]
    return max(inputs, key=lambda i: i["rows"])


def sqnr_db(module, what):
    """SQNR of a verified module with Gaussian activations; `what` is kernel or end_to_end."""
    figure = gaussian(module)[what]["sqnr_db"]
    return math.inf if figure == "infinite" else figure


def flip(path, offset, bit):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


def flip_weight(folder, module):
    """Flips a bit of the first byte of a packed module's weight."""
    header, start = read_header(folder / "model.safetensors")
    flip(folder / "model.safetensors", start + header[module + ".weight"]["data_offsets"][0], 3)


def snapshot(folder):
    """Everything that must not change in a source: names, bytes, sizes, modification times."""
    state = {}
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        state[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns, digest)
    return state


def end_the_tool(number, delay=0):
    """A command of --fetch that sends its own prepack a signal. A shell that starts when that one is gone has another
    parent, which it must spare; and what outlives a prepack that was killed writes nothing."""
    ends = "true" if number == signal.SIGTERM else "exit 1"
    return f"sleep {delay}; test /proc/$PPID/exe -ef {TOOL} && kill -{int(number)} $PPID; {ends}"


def contents(folder):
    """Names, sizes and bytes."""
    return {name: (size, digest) for name, (size, _, digest) in snapshot(folder).items()}


def in_terminal(*args, env=None):
    """What the tool writes to a terminal, stdout and stderr; it must succeed."""
    end = b"\0the end\0"
    terminal, own = pty.openpty()
    child = subprocess.Popen([TOOL, *map(str, args)], stdin=own, stdout=own, stderr=own, start_new_session=True,
                             env={**os.environ, **(env or {}), "NO_COLOR": "1"})

    def wait():
        # Where the last writer closes a terminal, Linux may drop what was not read yet.
        child.wait()
        os.write(own, end)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait)
        data = b""
        while not data.endswith(end):
            data += os.read(terminal, 65536)
    os.close(terminal)
    os.close(own)
    text = data.removesuffix(end).decode().replace("\r\n", "\n")
    assert child.returncode == 0, text
    return text


def not_with_sanitizers(reason, kind=""):
    """Leaves a test out of a build with sanitizers (of that kind); tools/test shows what was left out."""

    def decorate(test):
        if not SANITIZERS or kind not in SANITIZERS:
            return test
        print(f"left out with -fsanitize={SANITIZERS}: {test.__qualname__}: {reason}", flush=True)
        return unittest.skip(reason)(test)

    return decorate


@functools.cache  # the check of a schema takes longer than most runs of the tool
def validator(schema):
    """What judges documents by schemas/SCHEMA.schema.json."""
    schema = json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


class ToolTest(unittest.TestCase):
    """A test with a scratch folder and the tool."""

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="prepack-cli-"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def run_tool(self, *args, env=None, **kwargs):
        return subprocess.run(
            [TOOL, *map(str, args)],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            timeout=300,
            check=False,
            **kwargs,
        )

    def run_ok(self, *args, **kwargs):
        result = self.run_tool(*args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        return result

    def assert_fails(self, code, texts, *args, **kwargs):
        """The tool ends with `code` and one line on stderr that holds every one of `texts`."""
        result = self.run_tool(*args, **kwargs)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("error: "), lines[0])
        for text in texts:
            self.assertIn(text, lines[0])
        return result

    def help_options(self, subcommand):
        return set(re.findall(r"--[a-z-]+", self.run_ok(subcommand, "--help").stdout))

    def checked_json(self, text, schema):
        document = json.loads(text)
        validator(schema).validate(document)
        return document

    def convert(self, source, target, *args, name=None, **kwargs):
        out = self.scratch / (name or f"{pathlib.Path(source).name}-{target}")
        self.run_ok("convert", source, "-o", out, "--target", target, *args, **kwargs)
        return out

    def copy_checkpoint(self, name="ct-w4a16-g128-sym"):
        folder = self.scratch / f"source-{name}"
        shutil.copytree(CHECKPOINTS / name, folder)
        return folder
