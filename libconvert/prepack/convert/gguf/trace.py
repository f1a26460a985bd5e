"""Lets llama.cpp's own converter say what a GGUF file of a model looks like, without the weights.

The converter works on tracers in place of tensors: they know the shape of a weight, and for each of their elements
which row and column of which tensor of the checkpoint it is. They go through whatever the converter does by moving
elements: names, heads whose rows change places, experts that are stacked. What arrives at its writer says which rows
each tensor of the file holds. Where the converter computes with values (a norm plus one), it gets the values.

The question is a JSON object in a line on standard input, the answer one on standard output. Both name files, because
a model has hundreds of thousands of tensors.
"""

import functools
import importlib
import inspect
import json
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import torch

ROW_BITS = 40  # a row of a tensor, below the number of the tensor
MOST_ELEMENTS = 1 << 27  # of an order that no rule describes
MOST_PIECES = 4096  # of a tensor
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "spiece.model")
FLOATS = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
OTHERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}


class Refused(Exception):
    """What the converter cannot do with this model, in words for the user."""


@functools.cache
def places(shape):
    """The rows and the columns of the elements of a tensor."""
    *outer, columns = shape
    rows = torch.arange(int(np.prod(outer, dtype=np.int64))).reshape(*outer, 1)
    return rows, torch.arange(columns).reshape(*(1 for _ in outer), columns).expand(shape)


class Source:
    """A tensor of the checkpoint. Of codes there are no values, unless the question has them as floats; and a probe asks
    what the converter does with any values."""

    probe = False

    def __init__(self, number, entry, needs):
        self.number = number
        self.name = entry["name"]
        self.shape = entry["shape"]
        self.transposed = entry.get("transposed", False)
        self.dtype = {**FLOATS, **OTHERS}.get(entry.get("dtype"))
        self.file = entry.get("file")
        self.offset = entry.get("offset", 0)
        self.needs = needs

    def values(self):
        """All of it, as stored."""
        if self.probe:
            numbers = torch.randn(self.shape, generator=torch.Generator().manual_seed(self.number))
            return (numbers if self.dtype in FLOATS.values() else numbers.abs()).to(self.dtype or torch.float32)
        if self.file is None:
            self.needs.add(self.name)
            return torch.zeros(self.shape, dtype=torch.float32)
        count = int(np.prod(self.shape, dtype=np.int64))
        raw = np.fromfile(self.file, np.uint8, count * self.dtype.itemsize, offset=self.offset)
        return torch.from_numpy(raw).view(self.dtype).reshape(self.shape)

    def tracer(self):
        rows, columns = places(tuple(self.shape))
        made = Tracer.make((rows + (self.number << ROW_BITS)).expand(self.shape), columns, torch.float32, self)
        return made.transpose(-1, -2) if self.transposed else made

    def tensor(self):
        """What the converter gets: values of what is small, as vectors are, or no float."""
        has_values = self.dtype is not None if self.probe else self.file is not None
        if has_values and (len(self.shape) < 2 or self.dtype not in FLOATS.values()):
            return self.values()
        return self.tracer()


class Stack:
    """Experts that the converter is to see as one tensor, although the checkpoint has them one by one."""

    def __init__(self, entry, sources):
        self.name = entry["name"]
        self.experts = [[sources[number] for number in parts] for parts in entry["experts"]]
        self.alternating = entry["alternating"]
        self.transposed = entry["transposed"]

    def tensor(self):
        experts = [self.joined([part.tensor() for part in parts]) for parts in self.experts]
        stacked = torch.stack(experts)
        return stacked.transpose(-1, -2) if self.transposed else stacked

    def joined(self, parts):
        if not self.alternating:
            return torch.cat(parts)
        return torch.stack(parts, 1).reshape(len(parts) * parts[0].shape[0], *parts[0].shape[1:])


def repeated(tensor, dim):
    return tensor.shape[dim] > 1 and tensor.stride(dim) == 0


def once(tensor, keep=()):
    """The tensor with one index of each dimension along which it repeats itself."""
    for dim in range(tensor.dim()):
        if dim not in keep and repeated(tensor, dim):
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def compact(tensor):
    """A copy that still repeats itself without memory for it."""
    if tensor.numel() and once(tensor).numel() > MOST_ELEMENTS:
        raise Refused("the converter reorders single elements of a large tensor")
    return once(tensor).contiguous().expand(tensor.shape)


def reshaped(tensor, shape):
    try:
        return tensor.view(shape)
    except RuntimeError:
        pass
    try:
        return compact(tensor).view(shape)
    except RuntimeError:
        if tensor.numel() > MOST_ELEMENTS:
            raise Refused("the converter reorders single elements of a large tensor") from None
        return tensor.reshape(shape)


def joined(join, tensors, dim):
    """cat or stack: dimensions along which all repeat themselves still do."""
    axis = dim % (tensors[0].dim() + (join is torch.stack))
    shift = [d + (join is torch.stack and d >= axis) for d in range(tensors[0].dim())]
    same = [d for d in range(tensors[0].dim()) if (join is torch.stack or d != axis)
            and all(repeated(t, d) or t.shape[d] == 1 for t in tensors)]
    narrow = [t for t in tensors]
    for d in same:
        narrow = [t.narrow(d, 0, 1) for t in narrow]
    result = join(narrow, dim)
    shape = list(result.shape)
    for d in same:
        shape[shift[d]] = tensors[0].shape[d]
    return result.expand(shape)


aten = torch.ops.aten
# What moves elements and nothing else: done to rows and columns alike.
MOVES = {aten.permute, aten.transpose, aten.t, aten.slice, aten.select, aten.unsqueeze, aten.squeeze, aten.split,
         aten.split_with_sizes, aten.chunk, aten.unbind, aten.expand, aten.alias, aten.detach, aten.index_select,
         aten.flip, aten.narrow, aten.index, aten.movedim, aten.swapaxes}
VIEWS = {aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias}
COPIES = {aten.clone, aten.contiguous, aten._to_copy, aten.lift_fresh}


class Tracer(torch.Tensor):
    @staticmethod
    def make(rows, columns, dtype, source):
        made = torch.Tensor._make_wrapper_subclass(Tracer, rows.shape, dtype=dtype)
        made.rows, made.columns, made.source = rows, columns, source
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def numpy(self, *args, **kwargs):
        del args, kwargs
        return Traced(self)

    def values(self):
        """The elements themselves, in f32 where they are floats."""
        numbers = torch.unique(once(self.rows) >> ROW_BITS)
        result = None
        for number in numbers.tolist():
            source = Tracer.sources[number]
            matrix = source.values().reshape(-1, source.shape[-1])
            mine = (self.rows >> ROW_BITS) == number
            row = torch.where(mine, self.rows & ((1 << ROW_BITS) - 1), 0)
            found = matrix[row, torch.where(mine, self.columns, 0)].to(self.dtype)
            result = found if result is None else torch.where(mine, found, result)
        return result

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        del types
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet in COPIES:
            dtype = kwargs.get("dtype") or args[0].dtype
            return cls.make(args[0].rows, args[0].columns, dtype, args[0].source)
        if packet in VIEWS:
            return cls.both(args[0], lambda t: reshaped(t, args[1]))
        if packet in (aten.cat, aten.stack) and all(isinstance(t, cls) for t in args[0]):
            join = torch.cat if packet is aten.cat else torch.stack
            dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
            rows, columns = (joined(join, [getattr(t, part) for t in args[0]], dim) for part in ("rows", "columns"))
            return cls.make(rows, columns, args[0][0].dtype, args[0][0].source)
        if packet in MOVES and isinstance(args[0], cls):
            return cls.both(args[0], lambda t: func(t, *args[1:], **kwargs))
        return cls.computed(func, args, kwargs)

    @classmethod
    def both(cls, tracer, move):
        rows, columns = move(tracer.rows), move(tracer.columns)
        if isinstance(rows, torch.Tensor):
            return cls.make(rows, columns, tracer.dtype, tracer.source)
        return [cls.make(r, c, tracer.dtype, tracer.source) for r, c in zip(rows, columns)]

    @classmethod
    def computed(cls, func, args, kwargs):
        """Of anything else: with the values."""
        if func.overloadpacket in (aten.copy_, aten.fill_, aten.index_put_, aten.zero_):
            raise Refused(f"the converter writes into a part of {args[0].source.name}")

        def real(value):
            if isinstance(value, (list, tuple)):
                return type(value)(real(v) for v in value)
            return value.values() if isinstance(value, cls) else value

        return func(*real(args), **{key: real(value) for key, value in kwargs.items()})


class Traced:
    """A tracer as the array that the converter quantizes and hands to its writer."""

    def __init__(self, tracer, wanted=None):
        self.tracer = tracer
        self.shape = tuple(tracer.shape)
        self.ndim = len(self.shape)
        self.dtype = np.dtype(np.float32)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * 4
        self.wanted = wanted  # the type that the converter would give it

    def astype(self, *args, **kwargs):
        del args, kwargs
        return self

    def rows(self):
        """The rows of the checkpoint that the rows of the tensor are, or None if it has no whole ones."""
        tracer = self.tracer
        if tracer.dim() < 2 or (tracer.shape[-1] > 1 and tracer.rows.stride(-1) != 0):
            return None
        columns = once(tracer.columns, keep=(tracer.dim() - 1,))
        if not torch.all(columns == torch.arange(tracer.shape[-1])):
            return None
        rows = tracer.rows[..., 0].flatten().numpy()
        widths = {Tracer.sources[number].shape[-1] for number in np.unique(rows >> ROW_BITS).tolist()}
        return rows if widths == {tracer.shape[-1]} else None

    def elements(self):
        """The same of its elements, counted through the whole tensor; None if they are too many."""
        tracer = self.tracer
        if tracer.numel() == 0 or tracer.numel() > MOST_ELEMENTS:
            return None
        rows, columns = tracer.rows.flatten(), tracer.columns.flatten()
        numbers = rows >> ROW_BITS
        for number in torch.unique(numbers).tolist():
            width = Tracer.sources[number].shape[-1]
            within = (rows & ((1 << ROW_BITS) - 1)) * width + columns
            rows = torch.where(numbers == number, (numbers << ROW_BITS) + within, rows)
        return rows.numpy()


def loops(rows):
    """Rows as nested loops [[count, step], ...], the outermost first; None if they are none."""
    dims = []
    while len(rows) > 1:
        steps = np.diff(rows)
        breaks = np.flatnonzero(steps != steps[0])
        run = int(breaks[0]) + 1 if len(breaks) else len(rows)
        if len(rows) % run or np.any(np.diff(rows.reshape(-1, run), axis=1) != steps[0]):
            return None
        dims.insert(0, [run, int(steps[0])])
        rows = rows[::run]
    return dims


def origin(number, values):
    """What the values were made of by the converter, which got the tensor of that number: where that can be undone, its
    elements in their order, and what was added to them."""
    source = Tracer.sources[number]
    made = {"of": number}
    if source.dtype not in FLOATS.values() or values.dtype not in (np.float32, np.float16):
        return made
    stored = source.values()
    before, after = stored.to(torch.float32).flatten(), torch.from_numpy(np.float32(values)).flatten()
    for plus in (0, 1):
        same = before.shape == after.shape and torch.equal(before + plus, after)
        if same and torch.equal((after - plus).to(source.dtype), stored.flatten()):
            made["elements"] = [[number, 0, [[len(after), 1]]]]
            return {**made, "plus": plus} if plus else made
    return made


def pieces(rows):
    """[tensor, first row, loops] for all rows, in their order."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows >> ROW_BITS)) + 1)
    # Nearly always whole tensors, one behind the other.
    if np.count_nonzero(np.diff(rows) != 1) == len(runs) - 1:
        return [piece(run, [[len(run), 1]] if len(run) > 1 else []) for run in runs]
    result = []
    for run in runs:
        dims = loops(run)
        if dims is not None:
            result.append(piece(run, dims))
        else:
            parts = np.split(run, np.flatnonzero(np.diff(run) != 1) + 1)
            result.extend(piece(part, loops(part)) for part in parts)
    return result


def piece(rows, dims):
    first = int(rows[0])
    return [first >> ROW_BITS, first & ((1 << ROW_BITS) - 1), dims]


class Recorder:
    """Takes what the converter gives to its writer."""

    def __init__(self, gguf, values_path):
        self.gguf = gguf
        self.quantize = gguf.quants.quantize
        self.add_info = gguf.GGUFWriter.add_tensor_info
        self.values = open(values_path, "wb")
        self.tensors = []
        self.numbers = {}  # of the tensors, by the names that the converter knows them by
        self.current = None  # the number of the one that it works on

    def watch(self, model):
        """Notes which tensor the model's class is given."""
        modify = model.modify_tensors

        def noted(data, name, bid):
            self.current = self.numbers.get(name)
            return modify(data, name, bid)

        model.modify_tensors = noted

    def install(self):
        recorder = self

        def quantize(data, wanted):
            if isinstance(data, Traced):
                return Traced(data.tracer, wanted)
            if wanted == recorder.gguf.GGMLQuantizationType.BF16:
                return recorder.smallest(data)
            return recorder.quantize(data, wanted)

        def add_tensor(writer, name, tensor, raw_shape=None, raw_dtype=None, tensor_endianess=None):
            del tensor_endianess
            recorder.take(writer, name, tensor, raw_shape, raw_dtype)

        self.gguf.quants.quantize = quantize
        self.gguf.GGUFWriter.add_tensor = add_tensor

    def smallest(self, data):
        """Values that the converter has computed, in the smallest type that holds them."""
        types = self.gguf.GGMLQuantizationType
        bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
        if not np.any(bits & 0xFFFF):
            return self.quantize(data, types.BF16)
        with np.errstate(over="ignore"):
            half = data.astype(np.float16)
        return half if np.array_equal(half.astype(np.float32), data) else np.asarray(data, np.float32)

    def take(self, writer, name, tensor, raw_shape, raw_dtype):
        rows, made = None, {}
        if isinstance(tensor, Traced):
            rows = tensor.rows()
            if rows is None:
                elements = tensor.elements()
                made["of"] = tensor.tracer.source.number
                runs = pieces(elements) if elements is not None else []
                if len(runs) <= MOST_PIECES:
                    made["elements"] = runs
                computed = tensor.tracer.values().numpy()
                wanted = tensor.wanted
                tensor = self.gguf.quants.quantize(computed, wanted) if wanted is not None else computed
                raw_dtype = None if tensor.dtype != np.uint8 else wanted
        elif self.current is not None:
            made = origin(self.current, tensor)
        if raw_dtype is not None and isinstance(tensor, np.ndarray) and tensor.dtype != np.uint8:
            raw_dtype = None  # its own dtype says it
        shape = raw_shape if raw_shape is not None else tensor.shape
        self.add_info(writer, name, shape, tensor.dtype, tensor.nbytes, raw_dtype=None if rows is not None else raw_dtype)
        info = writer.tensors[-1][name]
        entry = {"name": name, "dims": [int(d) for d in reversed(info.shape)]}
        if rows is not None:
            wanted = tensor.wanted
            forced = wanted is not None and wanted.name != "BF16"
            entry.update(rows=pieces(rows), type=wanted.name if forced else None)
        else:
            raw = np.ascontiguousarray(tensor)
            entry.update(type=info.dtype.name, offset=self.values.tell(), bytes=raw.nbytes, **made)
            raw.tofile(self.values)
        self.tensors.append(entry)


def without(keys, config):
    if isinstance(config, dict):
        return {key: without(keys, value) for key, value in config.items() if key not in keys}
    return [without(keys, value) for value in config] if isinstance(config, list) else config


def make_folder(question, folder):
    """The model's folder as the converter is to see it: as if it had never been quantized, and without code, which
    the converter would run."""
    source = Path(question["model"]).resolve()
    place = Path(folder) / source.name
    place.mkdir()
    keys = ["quantization_config", "compression_config"] + ([] if question["trust_code"] else ["auto_map"])
    for name in (*question["side_files"], "config.json"):
        if name in ("config.json", "tokenizer_config.json"):
            config = json.loads((source / name).read_text(encoding="utf-8"))
            (place / name).write_text(json.dumps(without(keys, config)), encoding="utf-8")
        else:
            os.symlink(source / name, place / name)
    return place


def load_converter(folder):
    """llama.cpp's converter, from its sources."""
    if not (folder / "convert_hf_to_gguf.py").is_file():
        raise Refused(f"{folder} has no convert_hf_to_gguf.py")
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    try:
        conversion = importlib.import_module("conversion")
        base = importlib.import_module("conversion.base")
    except ModuleNotFoundError as error:
        if error.name in ("conversion", "conversion.base"):
            raise Refused("this llama.cpp has no folder `conversion`: it is older than those that prepack knows") from None
        raise Refused(f"its converter needs the Python package {error.name}: pip install -r "
                      f"{folder}/requirements/requirements-convert_hf_to_gguf.txt") from None
    known = inspect.signature(base.ModelBase.__init__).parameters
    for name in ("dir_model", "ftype", "fname_out", "eager", "hparams"):
        if name not in known:
            raise Refused(f"its ModelBase has no parameter {name}: it is another version than those that prepack knows")
    return conversion, base


def file_type(gguf, question, tensors):
    """llama.cpp's name for the type that most weights have."""
    weights = {}
    for entry in tensors:
        if "rows" in entry:
            kind = question["tensors"][entry["rows"][0][0]].get("type") or "BF16"
            weights[kind] = weights.get(kind, 0) + int(np.prod(entry["dims"], dtype=np.int64))
    name = max(weights, key=weights.get) if weights else "BF16"
    name = {"MXFP4": "MXFP4_MOE", "Q3_K": "Q3_K_S", "Q4_K": "Q4_K_S", "Q5_K": "Q5_K_S"}.get(name, name)
    return getattr(gguf.LlamaFileType, f"MOSTLY_{name}", gguf.LlamaFileType.MOSTLY_BF16)


def set_tokenizer(model, wanted):
    if wanted:
        try:
            return type(model).set_vocab(model)
        except Exception as error:
            raise Refused(f"the tokenizer: {error} (--no-tokenizer makes a file without one)") from None
    model.gguf_writer.add_tokenizer_model("none")
    size = model.find_hparam(["vocab_size", "n_vocab"], optional=True)
    if size:
        model.gguf_writer.add_vocab_size(size)
    return None


def trace(question):
    conversion, base = load_converter(Path(question["llama_cpp"]))
    gguf = base.gguf
    needs = set()
    Source.probe = question.get("probe", False)
    Tracer.sources = [Source(i, entry, needs) for i, entry in enumerate(question["tensors"])]
    stacks = [Stack(entry, Tracer.sources) for entry in question["stacks"]]
    parts = {part.number for stack in stacks for expert in stack.experts for part in expert}
    shown = [source for source in Tracer.sources if source.number not in parts] + stacks

    def index_tensors(self, remote_hf_model_id=None):
        del remote_hf_model_id
        found = {}
        for source in shown:
            item = self.filter_tensors((source.name, source.tensor))
            if item:
                found[item[0]] = item[1]
                recorder.numbers[item[0]] = source.number
        return found

    base.ModelBase.index_tensors = index_tensors
    recorder = Recorder(gguf, question["values"])
    recorder.install()
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode(False), torch.no_grad():
        folder = make_folder(question, scratch)
        hparams = base.ModelBase.load_hparams(folder, False)
        kind = base.ModelType.TEXT
        try:
            model_class = conversion.get_model_class(base.get_model_architecture(hparams, kind))
        except NotImplementedError:
            raise Refused(f"this llama.cpp knows no model of class {base.get_model_architecture(hparams, kind)}") from None
        # Quantizers leave the heads for several tokens out, which the converter insists on unless told.
        if getattr(model_class, "supports_mtp_export", False):
            model_class.no_mtp = not any("mtp" in source.name for source in Tracer.sources)
        model = model_class(folder, gguf.LlamaFileType.MOSTLY_BF16, Path(question["metadata"]), eager=True,
                            hparams=hparams)
        recorder.watch(model)
        model.prepare_tensors()
        recorder.values.close()
        if needs:
            return {"needs": sorted(needs)}
        model.ftype = file_type(gguf, question, recorder.tensors)
        has_tokenizer = question["tokenizer"] and any((folder / name).is_file() for name in TOKENIZER_FILES)
        model.set_vocab = lambda: set_tokenizer(model, has_tokenizer)
        model.prepare_metadata(vocab_only=False)
        writer = model.gguf_writer
        writer.tensors = [{}]
        writer.write_header_to_file(path=Path(question["metadata"]))
        writer.write_kv_data_to_file()
        writer.close()
    with open(question["plan"], "w", encoding="utf-8") as plan:
        plan.write(json.dumps({"tensors": {entry.pop("name"): entry for entry in recorder.tensors}}))
    return {"tokenizer": has_tokenizer, "class": model_class.__name__}


def main():
    logging.disable(logging.WARNING)
    with open(json.loads(sys.stdin.readline())["question"], encoding="utf-8") as file:
        question = json.load(file)
    # What libraries print or ask is not for the channel that the question came over.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        answer = trace(question)
    except Refused as refusal:
        answer = {"error": str(refusal)}
    except Exception as error:  # of llama.cpp's code: what it says is all that there is to say
        last = traceback.extract_tb(error.__traceback__)[-1]
        answer = {"error": f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}: {error}"}
    print(json.dumps(answer), file=channel, flush=True)


if __name__ == "__main__":
    main()
