"""Pages of --html, in a real browser: they render, sort, search and follow the colour scheme."""

import json
import sys
import unittest

import harness
from browser import Browser
from harness import CHECKPOINTS

FLOAT = harness.ROOT / "fixtures" / "float-bf16"

# The texts of a column of the last table, in the order in which they are shown.
COLUMN = """[...[...document.querySelectorAll("table")].pop().tBodies[0].rows]
    .filter(row => !row.hidden).map(row => row.cells[%d].textContent)"""
CLICK = """[...document.querySelectorAll("table")].pop().tHead.rows[0].cells[%d]
    .querySelector("button").click()"""
SEARCH = """{ const input = [...document.querySelectorAll("input")].pop();
    input.value = %s; input.dispatchEvent(new Event("input")); }"""


def luminance(colour):
    """Of "rgb(r, g, b)", as WCAG defines it."""
    channels = [int(c) / 255 for c in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


class Html(harness.ToolTest):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def page(self, code, *args):
        """The path of the page that the tool writes, opened in the browser."""
        path = self.scratch / "report.html"
        result = self.run_tool(*args, "--html", path)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertLess(path.stat().st_size, 2_000_000)
        self.browser.problems.clear()
        self.browser.open(path)
        return path

    def look(self, modules, heat=True):
        """What holds for every report of so many modules."""
        browser = self.browser
        self.assertEqual(browser.evaluate("document.querySelectorAll('h1').length"), 1)
        self.assertGreaterEqual(browser.evaluate("document.querySelectorAll('svg circle').length"), modules)
        cells = browser.evaluate("document.querySelectorAll('svg rect.heat').length")
        self.assertGreaterEqual(cells, modules if heat else 0)
        # Nothing sticks out of the page, and no chart is empty.
        self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"),
                             browser.evaluate("document.documentElement.clientWidth"))
        heights = browser.evaluate("[...document.querySelectorAll('figure > svg')]"
                                   ".map(svg => svg.getBoundingClientRect().height)")
        self.assertGreater(min(heights), 20)
        self.assertEqual(browser.evaluate("performance.getEntriesByType('resource').length"), 0)
        self.readable()
        self.assertEqual(browser.problems, [])

    def readable(self):
        """Text stands out from what is behind it, in both colour schemes."""
        backs = []
        for scheme in ("light", "dark"):
            self.browser.colour_scheme(scheme)
            style = "getComputedStyle(%s)"
            back = self.browser.evaluate(style % "document.body" + ".backgroundColor")
            backs.append(back)
            for what in ("document.body", "document.querySelector('h1 span')",
                         "document.querySelector('dt')"):
                text = self.browser.evaluate(style % what + ".color")
                low, high = sorted([luminance(text), luminance(back)])
                self.assertGreaterEqual((high + 0.05) / (low + 0.05), 4.5, (scheme, what))
        self.assertNotEqual(*backs)
        self.browser.colour_scheme("light")

    def sorted_by(self, column):
        self.browser.evaluate(CLICK % column)
        up = self.browser.evaluate(COLUMN % column)
        self.browser.evaluate(CLICK % column)
        return up, self.browser.evaluate(COLUMN % column)

    def test_verify(self):
        packed = self.scratch / "packed"
        self.run_ok("convert", CHECKPOINTS / "ct-w4a16-g128-sym", "-o", packed, "-t", "vllm-cpu")
        self.page(0, "verify", packed, "--baseline", FLOAT)
        self.look(7)
        self.assertEqual(self.browser.evaluate("document.querySelector('h1').textContent"),
                         "prepack verify: passed")
        up, down = self.sorted_by(4)  # kernel dB
        self.assertEqual(up, sorted(up, key=float))
        self.assertEqual(sorted(down, key=float, reverse=True), down)
        self.assertGreater(len(set(up)), 1)
        names = self.sorted_by(0)[0]
        self.assertEqual(names, sorted(names))

    def test_search(self):
        self.page(0, "check", CHECKPOINTS / "awq-gemm-g128", "--baseline", FLOAT)
        self.look(7)
        self.browser.evaluate(SEARCH % json.dumps("SELF_ATTN q_proj"))
        self.assertEqual(self.browser.evaluate(COLUMN % 0), ["model.layers.0.self_attn.q_proj"])
        count = "[...document.querySelectorAll('.search span')].pop().textContent"
        self.assertEqual(self.browser.evaluate(count), "1 of 7")
        self.browser.evaluate(SEARCH % json.dumps(""))
        self.assertEqual(len(self.browser.evaluate(COLUMN % 0)), 7)
        # Both histograms.
        titles = self.browser.evaluate(
            "[...document.querySelectorAll('.panels figcaption')].map(f => f.textContent)")
        self.assertEqual(len(titles), 2)
        self.assertTrue(titles[0].endswith("7 modules: codes"), titles)

    def test_diff(self):
        self.page(1, "diff", CHECKPOINTS / "awq-gemm-g128", CHECKPOINTS / "gptqmodel-w4-sym-g128")
        self.look(7)
        self.assertEqual(self.browser.evaluate("document.querySelector('h1').textContent"),
                         "prepack diff: different")

    @harness.needs_onednn
    def test_tune(self):
        self.page(0, "tune", CHECKPOINTS / "ct-w4a16-g128-sym", "-t", "onednn", "--batch", "1", "--time", "0.1")
        self.look(2 * 7 + 7, heat=False)  # candidates, and the modules that were looked at
        names = self.sorted_by(0)[0]
        self.assertEqual((len(names), names), (21, sorted(names)))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('svg circle[r=\"6\"]').length"), 7)

    def test_inspect(self):
        source = CHECKPOINTS / "ct-mixed"
        self.page(0, "inspect", source)
        self.look(2 * 6, heat=False)
        text = self.browser.evaluate("document.querySelectorAll('table')[1].textContent")
        for target in harness.TARGETS:
            self.assertIn(f"{target}6 of 6", text)
        # The table of modules is the last but one; that of tensors is folded, and the last.
        self.assertFalse(self.browser.evaluate("document.querySelector('details').open"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('table').length"), 4)
        self.browser.evaluate("document.querySelector('summary').click()")
        self.assertTrue(self.browser.evaluate("document.querySelector('details').open"))
        sizes = {t["name"]: t["bytes"] for t in json.loads(
            self.run_ok("inspect", source, "--json").stdout)["tensors"]}
        self.browser.evaluate(CLICK % 3)
        names = self.browser.evaluate(COLUMN % 0)
        self.assertEqual(set(names), set(sizes))
        self.assertEqual([sizes[name] for name in names], sorted(sizes.values()))
        self.browser.evaluate(SEARCH % json.dumps("down_proj scale"))
        self.assertEqual(self.browser.evaluate(COLUMN % 0),
                         ["model.layers.0.mlp.down_proj.weight_scale"])

    def test_inspect_of_a_packed_folder(self):
        packed = self.convert(CHECKPOINTS / "gptqmodel-dynamic", "vllm-cpu", "--scales", "exact")
        self.page(0, "inspect", packed)
        self.look(2 * 5, heat=False)
        facts = self.browser.evaluate("document.querySelector('dl').textContent")
        for fact in ("vllm-cpu", "gptqmodel-dynamic", "--scales exact", "prepack 0.",
                     harness.manifest(packed)["source"]["fingerprint"]):
            self.assertIn(fact, facts)
        self.assertIn("left as stored", self.browser.evaluate("document.querySelector('li').textContent"))

    def test_inspect_of_four_hundred_modules(self):
        random = harness.large_checkpoint(self.scratch / "many", 400, n=8, k=128)
        self.page(0, "inspect", random)
        self.look(2 * 400, heat=False)
        rows = "[...document.querySelectorAll('table')].at(-2).tBodies[0].rows"
        self.assertEqual(self.browser.evaluate(f"{rows}.length"), 400)
        self.assertEqual(self.browser.evaluate(f"{rows}[10].cells[0].textContent"),
                         "model.layers.10.mlp.up_proj")

    def test_names_of_files_are_no_markup(self):
        odd = self.copy_checkpoint()
        evil = odd.parent / "<img src=x onerror=throw2>"
        odd.rename(evil)
        self.page(0, "check", evil)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assertEqual(self.browser.problems, [])

    def test_pages_are_not_written_into_a_checkpoint(self):
        folder = self.copy_checkpoint()
        before = sorted(p.name for p in folder.iterdir())
        for args in (["check", folder], ["diff", folder, folder], ["inspect", folder]):
            self.assert_fails(2, ["--html"], *args, "--html", folder / "page.html")
        nowhere = self.scratch / "nowhere" / "page.html"
        for args in (["check", folder], ["diff", folder, folder], ["inspect", folder]):
            self.assert_fails(4, ["nowhere"], *args, "--html", nowhere)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
