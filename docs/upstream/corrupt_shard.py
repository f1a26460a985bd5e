"""Copies a checkpoint and damages the copy, as transfers, disks and scripts do. Python alone.

    python corrupt_shard.py CHECKPOINT OUT lost-scale|lost-page|swapped-layers

lost-scale      one tensor of scales is missing from its file, as after a save that was cut short
lost-page       64 KiB of codes are zero, as after a transfer that left a hole
swapped-layers  two tensors of one shape have changed places: every hash of every tensor exists, elsewhere
"""

import json
import shutil
import struct
import sys
from pathlib import Path

PAGE = 65536


def read(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])


def write(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def weights(header):
    """Tensors of codes, the largest first."""
    found = [name for name in header if name.endswith(("weight_packed", "qweight"))]
    return sorted(found, key=lambda name: header[name]["data_offsets"][0] - header[name]["data_offsets"][1])


def lost_scale(header, data):
    name = next(one for one in sorted(header) if one.endswith("weight_scale"))
    begin, end = header.pop(name)["data_offsets"]
    for entry in header.values():
        if "data_offsets" in entry and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [at - (end - begin) for at in entry["data_offsets"]]
    del data[begin:end]
    return name


def lost_page(header, data):
    name = weights(header)[0]
    begin = header[name]["data_offsets"][0]
    data[begin : begin + PAGE] = bytes(PAGE)
    return name


def swapped_layers(header, data):
    names = weights(header)
    first, second = next(
        (a, b) for a in names for b in names if a < b and header[a]["shape"] == header[b]["shape"]
    )
    header[first], header[second] = header[second], header[first]
    return f"{first} and {second}"


def main():
    source, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    shutil.copytree(source, out)
    shard = out / "model.safetensors"
    header, data = read(shard)
    damage = {"lost-scale": lost_scale, "lost-page": lost_page, "swapped-layers": swapped_layers}
    print(f"{kind}: {damage[kind](header, data)}")
    write(shard, header, data)


if __name__ == "__main__":
    main()
