"""Our reader of safetensors headers against the format's own library, on generated files.

Each file is a sound one with up to three defects. Both readers must say the same: the same tensors and
metadata, or a refusal. Where they may differ stands in STRICTER and LENIENT, and in docs/security.md;
any other difference fails, and so does a row that no file of a long run needs.

    header_verdicts_test.py [--count N] [--seconds S] [--seed SEED]
"""

import json
import os
import re
import struct
import tempfile

import safetensors
import verdicts

PROGRAM = os.environ["PREPACK_HEADER_VERDICTS"]

# What we refuse and the library takes: a pattern of our message → why, as docs/security.md has it.
STRICTER = verdicts.Table({
    r"^the header has this name twice": "a tensor twice, whether the fields are the same or not",
    r"^duplicate (key|field)": "a key twice in the metadata, or in an unknown field",
    r"^wrong type of value \| an array": "a tensor as an array of its fields, without their names",
    r"^wrong type of value \| null": "`null` in place of the metadata",
    r"^the name contains a control character": "a control character in the name of a tensor",
    r"^the name is too long": "a name of more than 4096 bytes",
    r"^too many dimensions": "more than 8 dimensions",
    r"^the size overflows 64 bits": "a shape with a zero dimension whose other dimensions overflow",
    r"^nested more than 4 levels deep": "more than 4 levels of JSON in an unknown field",
})
# What we take and the library refuses: a pattern of its message → why.
LENIENT = verdicts.Table({})

DTYPES = {  # name → bits
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
NAMES = ["a", "model.layers.0.mlp.up_proj.weight", "", "é", "\U0001f600", "a b", "x/../y", "\\\"", "dtype",
         "__metadata", "n" * 300]
TEXTS = ['"pt"', '""', '"\\u00e9\\ud83d\\ude00"', '"\\n\\t\\"\\/"']
NUMBERS = ["0", "1", "2", "3", "7", "-1", "-0", "1.0", "1e1", "0.5", "01", "+1", "4294967296", "9223372036854775808",
           "18446744073709551615", "18446744073709551616", "1e400", "NaN", "true", "null", '"1"', "[]", "{}"]
VALUES = NUMBERS + TEXTS + ['"\\ud800"', '"\\u0000"', "[1,2]", '{"a":1}', '{"a":{"b":[{}]}}', '{"a":1,"a":2}',
                            "[[[[[[1]]]]]]", '"' + "v" * 5000 + '"', "nul", ""]


class Header:
    """The text of a header in pieces, so that any of them can be broken."""

    def __init__(self, rng):
        self.rng = rng
        self.entries = []  # [name as JSON, [[field as JSON, value as JSON], …]]
        self.metadata = None  # [[key as JSON, value as JSON], …]
        offset = 0
        for name in rng.sample(NAMES, rng.randrange(4)):
            dtype = rng.choice(list(DTYPES))
            shape = [rng.choice([0, 1, 1, 2, 3, 4, 8]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 8]))]
            bits = DTYPES[dtype]
            for dim in shape:
                bits *= dim
            if bits % 8 or bits > 80_000:
                dtype, shape, bits = "U8", [2], 16
            end = offset + bits // 8
            fields = [['"dtype"', f'"{dtype}"'], ['"shape"', json.dumps(shape)],
                      ['"data_offsets"', f"[{offset},{end}]"]]
            rng.shuffle(fields)
            self.entries.append([json.dumps(name, ensure_ascii=rng.random() < 0.5), fields])
            offset = end
        self.data = rng.randbytes(offset)
        rng.shuffle(self.entries)
        if rng.random() < 0.4:
            self.metadata = [[json.dumps(key), rng.choice(TEXTS)] for key in rng.sample(NAMES, rng.randrange(3))]
        self.before, self.after = "", " " * rng.choice([0, 0, 0, 1, 7])
        self.space = rng.choice(["", "", " ", "\n\t"])

    def object_of(self, members):
        return "{" + ("," + self.space).join(f"{key}:{self.space}{value}" for key, value in members) + "}"

    def text(self):
        members = [[name, fields if isinstance(fields, str) else self.object_of(fields)]
                   for name, fields in self.entries]
        if self.metadata is not None:
            metadata = self.metadata if isinstance(self.metadata, str) else self.object_of(self.metadata)
            members.insert(self.rng.randrange(len(members) + 1), ['"__metadata__"', metadata])
        return self.before + self.object_of(members) + self.after


def fields_of(header):
    """The fields of any entry that still has some."""
    entries = [fields for _, fields in header.entries if isinstance(fields, list) and fields]
    return header.rng.choice(entries) if entries else None


def break_value(header):
    if fields := fields_of(header):
        header.rng.choice(fields)[1] = header.rng.choice(VALUES)


def break_list(header):
    """One number of a shape or of offsets."""
    if not (fields := fields_of(header)):
        return
    field = header.rng.choice(fields)
    if field[1].startswith("[") and field[1].endswith("]"):
        numbers = [n for n in field[1][1:-1].split(",") if n]
        change = header.rng.randrange(4)
        if change == 0 and numbers:
            numbers.pop()
        elif change == 1 or not numbers:
            numbers.append(header.rng.choice(NUMBERS))
        elif change == 2:
            numbers.reverse()
        else:
            numbers[header.rng.randrange(len(numbers))] = header.rng.choice(NUMBERS)
        field[1] = "[" + ",".join(numbers) + "]"


def break_dtype(header):
    if fields := fields_of(header):
        for field in fields:
            if field[0] == '"dtype"':
                field[1] = json.dumps(header.rng.choice([*DTYPES, "F6", "f32", "I4", "BF32", "F32 ", "F8_E4M3FN"]))


def move_offsets(header):
    if fields := fields_of(header):
        for field in fields:
            if numbers := re.fullmatch(r"\[(\d+),(\d+)\]", field[1]):
                begin, end = (int(n) + header.rng.choice([-1, 0, 0, 1]) for n in numbers.groups())
                field[1] = f"[{begin},{end}]"


def drop_field(header):
    if fields := fields_of(header):
        fields.pop(header.rng.randrange(len(fields)))


def repeat_field(header):
    if fields := fields_of(header):
        fields.append(list(header.rng.choice(fields)))


def add_field(header):
    if fields := fields_of(header):
        name = header.rng.choice(['"extra"', '"extra"', '"Dtype"', '""', '"offset"'])
        fields.insert(header.rng.randrange(len(fields) + 1), [name, header.rng.choice(VALUES)])


def repeat_entry(header):
    if header.entries:
        name, fields = header.rng.choice(header.entries)
        copy = [list(field) for field in fields] if isinstance(fields, list) else fields
        header.entries.append([name, copy])


def drop_entry(header):
    if header.entries:
        header.entries.pop(header.rng.randrange(len(header.entries)))


def break_entry(header):
    if header.entries:
        entry = header.rng.choice(header.entries)
        if header.rng.random() < 0.5 and isinstance(entry[1], list):
            entry[1] = "[" + ",".join(value for _, value in entry[1]) + "]"  # fields without their names
        else:
            entry[1] = header.rng.choice(VALUES)


def break_name(header):
    if header.entries:
        header.rng.choice(header.entries)[0] = header.rng.choice(
            ['"\\u0000"', '"\\n"', '"\\u007f"', '"\\ud800"', '"\\x41"', '"a\tb"', "a", '"\udcff"', '"\udced\udca0\udc80"',
             '"' + "n" * 4097 + '"', '"__metadata__"', '"\\u005f_metadata__"', '"\ufffe\u202e"'])


def break_metadata(header):
    header.metadata = header.rng.choice([
        "null", "[]", "{}", '"x"', "1", [['"a"', header.rng.choice(VALUES)]], [['"a"', '"1"'], ['"a"', '"2"']],
        [['"\\u0000"', '"\\u0000"']], [['"a"', '"' + "m" * 9000 + '"']]])


def break_frame(header):
    header.before = header.rng.choice(["", " ", "\n", "\ufeff", "x", "[", "\0", "//c\n"])
    header.after = header.rng.choice(["", " ", "\n", "\0", "x", "{}", "]", ",", "\t\r\n", "/**/"])


def break_data(header):
    header.data = header.rng.choice([header.data[:-1], header.data + b"x", b"", header.data + bytes(8)])


def add_empty(header):
    """A tensor of no bytes, whatever its other dimensions are."""
    end = len(header.data)
    shape = header.rng.choice(["[0]", "[0,18446744073709551615,2]", "[4294967296,4294967296,0]", "[3,0,4294967296]"])
    header.entries.append(['"empty"', [['"dtype"', '"F32"'], ['"shape"', shape],
                                       ['"data_offsets"', f"[{end},{end}]"]]])


DEFECTS = [break_value, break_list, break_dtype, move_offsets, drop_field, repeat_field, add_field, repeat_entry,
           drop_entry, break_entry, break_name, break_metadata, break_frame, break_data, add_empty]


def make_file(rng):
    header = Header(rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        rng.choice(DEFECTS)(header)
    # Bytes that are no UTF-8 come as surrogates.
    text = bytearray(header.text().encode(errors="surrogateescape"))
    if rng.random() < 0.1 and text:
        text[rng.randrange(len(text))] = rng.randrange(256)
    length = len(text) + (rng.choice([-1, 1, 1 << 20, 1 << 63]) if rng.random() < 0.03 else 0)
    return struct.pack("<Q", max(length, 0)) + bytes(text) + header.data


def ours(files):
    """Our verdicts: {"tensors": …, "metadata": …} or {"refused": …, "found": …}."""
    asked = b"".join(struct.pack("<I", len(file)) + file for file in files)
    return [json.loads(line) for line in verdicts.ask(PROGRAM, asked)]


def theirs(file):
    """The library's verdict: (name → (dtype, shape, bytes), None), or (None, message)."""
    try:
        tensors = safetensors.deserialize(file)
    except safetensors.SafetensorError as error:
        return None, str(error)
    return {name: (info["dtype"], list(info["shape"]), bytes(info["data"])) for name, info in tensors}, None


def their_metadata(file):
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(file)
        copy.flush()
        with safetensors.safe_open(copy.name, "numpy") as opened:
            return opened.metadata() or {}


def compare(file, verdict):
    """What is wrong, or None."""
    tensors, message = theirs(file)
    if "refused" in verdict:
        our_message = f"{verdict['refused']} | {verdict['found']}"
        if tensors is None or STRICTER.allows(our_message):
            return None
        return f"we refuse what the library takes: {our_message}"
    if tensors is None:
        return None if LENIENT.allows(message) else f"we take what the library refuses: {message}"
    read = {name: (t["dtype"], t["shape"], file[t["begin"]:t["end"]]) for name, t in verdict["tensors"].items()}
    if read != tensors:
        return f"we read {read}, the library {tensors}"
    if verdict["metadata"] and verdict["metadata"] != their_metadata(file):
        return f"we read the metadata {verdict['metadata']}, the library {their_metadata(file)}"
    return None


if __name__ == "__main__":
    verdicts.run(__doc__, 10_000, [STRICTER, LENIENT], make_file, ours, compare)
