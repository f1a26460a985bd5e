"""prepack inspect on single numbers: where a weight lies, what a byte holds."""

import json
import sys
import unittest

import harness
from harness import CHECKPOINTS, read_header

DOWN = "model.layers.0.mlp.down_proj"


def nibble(path, offset, bit):
    return path.read_bytes()[offset] >> bit & 15


class Find(harness.ToolTest):
    def find(self, folder, n, k, *args):
        result = self.run_ok("inspect", folder, "--json", *args, "--find", DOWN, n, k)
        return self.checked_json(result.stdout, "inspect_find")

    def test_a_weight_of_a_packed_folder_and_of_its_source(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        out = self.convert(source, "vllm-cpu")
        found = self.find(out, 17, 101)
        header, start = read_header(source / "model.safetensors")
        info = header[DOWN + ".weight_packed"]
        row = 4 * info["shape"][1]
        code, scale, zero_point = found["source"]["numbers"]
        self.assertEqual(
            code["where"][0]["offset"], start + info["data_offsets"][0] + 17 * row + 50
        )
        self.assertEqual((code["where"][0]["bit"], code["where"][0]["bits"]), (4, 4))
        self.assertEqual(found["source"]["group"], 3)
        self.assertEqual(scale["where"][0]["bits"], 16)
        self.assertAlmostEqual(
            found["source"]["weight"], (code["value"] - zero_point["value"]) * scale["value"]
        )
        packed = found["packed"]["numbers"][0]
        self.assertEqual(found["packed"]["form"], "vllm-cpu/wna16")
        self.assertEqual(packed["stored"], code["stored"])
        for path, number in ((source, code), (out, packed)):
            where = number["where"][0]
            stored = nibble(path / where["file"], where["offset"], where["bit"])
            self.assertEqual(stored, number["stored"])
        self.assertEqual(found["packed"]["weight"], found["source"]["weight"])

    def test_a_source_elsewhere_is_named(self):
        source = self.copy_checkpoint()
        out = self.convert(source, "onednn")
        moved = self.scratch / "moved"
        source.rename(moved)
        self.assertIsNone(self.find(out, 1, 2)["source"])
        self.assertEqual(self.find(out, 1, 2, "--source", moved)["source"]["path"], str(moved))
        text = self.run_ok("inspect", out, "--find", DOWN, 1, 2).stdout
        self.assertIn("--source", text)

    def test_columns_line_up(self):
        text = self.run_ok("inspect", CHECKPOINTS / "awq-gemm-g128", "--find", DOWN, 1, 2).stdout
        lines = text.splitlines()
        self.assertEqual(lines[0], f"{DOWN}: output channel 1, input channel 2, group 0")
        at = lines[3].index("file")
        self.assertTrue(all(line[at:].startswith("model.safetensors") for line in lines[4:7]))

    def test_what_is_wrong_is_said(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        near = "Did you mean model.layers.0.mlp.down_proj?"
        self.assert_fails(2, [near], "inspect", source, "--find", DOWN[:-1], 0, 0)
        self.assert_fails(2, ["not a number"], "inspect", source, "--find", DOWN, "x", 0)
        self.assert_fails(2, ["no such weight"], "inspect", source, "--find", DOWN, 0, 99999999)


class At(harness.ToolTest):
    def at(self, folder, offset):
        result = self.run_ok("inspect", folder, "--json", "--at", f"model.safetensors:{offset}")
        return self.checked_json(result.stdout, "inspect_at")

    def test_finding_and_looking_are_inverse(self):
        for source, target in (
            ("gptqmodel-w4-actorder-g128", "vllm-cpu"), ("ct-w4a8", "vllm-cpu"),
            ("awq-gemvfast-g128", "zentorch"), ("ct-fp8-block", "vllm-cpu"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            found = self.run_ok("inspect", out, "--json", "--find", DOWN, 33, 70).stdout
            found = self.checked_json(found, "inspect_find")
            for side, folder in (("source", CHECKPOINTS / source), ("packed", out)):
                where = found[side]["numbers"][0]["where"][0]
                held = self.at(folder, where["offset"])
                self.assertEqual(held["holds"], "code")
                self.assertEqual(held["module"], DOWN)
                self.assertIn((33, 70), [(n["n"], n["k"]) for n in held["numbers"]])

    def test_every_byte_of_a_small_part_is_accounted_for(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        header, start = read_header(out / "model.safetensors")
        begin = start + header[DOWN + ".weight_zero_point"]["data_offsets"][0]
        seen = set()
        for offset in range(begin, begin + 64):
            held = self.at(out, offset)
            self.assertEqual(held["holds"], "zero point")
            seen |= {(n["n"], n["group"], n["bit"]) for n in held["numbers"]}
        self.assertEqual(len(seen), 128)

    def test_offsets_may_be_hexadecimal_and_the_header_is_known(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        self.assertEqual(self.at(source, "0x7")["holds"], "header length")
        self.assertEqual(self.at(source, "0xA")["offset"], 10)
        self.assert_fails(2, ["the offset is missing"], "inspect", source, "--at", "model")
        self.assert_fails(2, ["behind the end"], "inspect", source, "--at", f"model.safetensors:{1 << 60}")


class Layout(harness.ToolTest):
    def layout(self, folder):
        result = self.run_ok("inspect", folder, "--json", "--layout", DOWN)
        return self.checked_json(result.stdout, "inspect_layout")

    def test_cells_are_what_find_says(self):
        for source, target in (
            ("ct-w4a8", "vllm-cpu"), ("gptqmodel-w4-actorder-g128", "vllm-cpu"),
            ("awq-gemm-g128", "onednn"), ("ct-w8a8-dynamic", "zentorch"), ("ct-fp8-block", "vllm-cpu"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            drawn = self.layout(out)
            for side in ("source", "packed"):
                cells = drawn[side]["cells"]
                self.assertEqual(len(cells) * drawn[side]["cell_bits"], 64 * 8)
                for index in (0, 1, 17, len(cells) - 1):
                    found = self.run_ok("inspect", out, "--json", "--find", DOWN, *cells[index])
                    number = json.loads(found.stdout)[side]["numbers"][0]["where"][0]
                    bit = 8 * number["offset_in_tensor"] + number["bit"]
                    self.assertEqual(bit, index * drawn[side]["cell_bits"])

    def test_side_by_side_when_there_is_room(self):
        out = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        wide = self.run_ok("inspect", out, "--layout", DOWN, env={"COLUMNS": "400"}).stdout
        narrow = self.run_ok("inspect", out, "--layout", DOWN, env={"COLUMNS": "80"}).stdout
        self.assertEqual(len(wide.splitlines()), 18)
        self.assertEqual(len(narrow.splitlines()), 37)
        first = [line for line in narrow.splitlines() if line.startswith("byte 0 ")]
        self.assertEqual([line.split()[2:5] for line in first],
                         [["n0k0", "n0k1", "n0k2"], ["n0k0", "n1k0", "n2k0"]])
        self.assertTrue(wide.splitlines()[2].startswith(first[0]))
        self.assertTrue(wide.splitlines()[2].endswith(first[1]))
        self.assertNotIn("\x1b", wide)


class Values(harness.ToolTest):
    def values(self, folder, *args):
        result = self.run_ok("inspect", folder, "--json", "--values", DOWN, *args)
        return self.checked_json(result.stdout, "inspect_values")

    def test_packed_and_stored_weights_are_the_same_numbers(self):
        for source, target in (
            ("ct-w4a16-g32-asym", "vllm-cpu"), ("gptqmodel-w4-actorder-g128", "onednn"),
            ("ct-w8a8-dynamic", "zentorch"),
        ):
            out = self.convert(CHECKPOINTS / source, target)
            where = ("--rows", "30:35", "--cols", "120:140")
            stored = self.values(CHECKPOINTS / source, *where)["values"]
            self.assertEqual((len(stored), len(stored[0])), (5, 20))
            self.assertEqual(self.values(out, *where)["values"], stored)
            self.assertGreater(len({value for row in stored for value in row}), 5)

    def test_codes_and_bytes_are_those_of_the_file(self):
        source = CHECKPOINTS / "ct-w4a16-g32-asym"
        header, start = read_header(source / "model.safetensors")
        info = header[DOWN + ".weight_packed"]
        at = start + info["data_offsets"][0] + 2 * 4 * info["shape"][1]
        stored = (source / "model.safetensors").read_bytes()[at : at + 4]
        where = ("--rows", "2:3", "--cols", ":8")
        codes = self.values(source, *where, "--codes")["values"]
        self.assertEqual(codes, [[b >> s & 15 for b in stored for s in (0, 4)]])
        shown = self.values(source, *where, "--bytes")["values"]
        self.assertEqual(shown, [[b for b in stored for _ in (0, 4)]])

    def test_columns_line_up_and_nonsense_is_refused(self):
        source = CHECKPOINTS / "ct-w8a8-dynamic"
        lines = self.run_ok("inspect", source, "--values", DOWN).stdout.splitlines()
        self.assertEqual(len(lines), 6)
        self.assertEqual(len({len(line) for line in lines[1:]}), 1)
        for wrong, text in (("4:4", "not a range"), ("a:b", "not a range"), ("9999999:", "no weights")):
            self.assert_fails(2, [text], "inspect", source, "--values", DOWN, "--rows", wrong)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
