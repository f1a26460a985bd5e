"""Links and names of files in documents lead somewhere, as do names of documents in all other files."""

import os
import re
import unittest

import doc_examples
from doc_examples import ROOT

# Folders whose files are the repository's own, besides those at its top.
FOLDERS = (
    "bench", "cmake", "docs", "examples", "fixtures", "integrations", "libconvert", "packaging", "schemas",
    "tests", "tools",
)  # fmt: skip
TEXT = {"", ".c", ".cmake", ".cpp", ".h", ".in", ".inc", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml"}


def without_code(text):
    """A document without its blocks of code, where nothing is a link or a heading."""
    lines = text.split("\n")
    for block in doc_examples.code_blocks(text):
        lines[block.first : block.first + len(block.lines)] = [""] * len(block.lines)
    return "\n".join(lines)


def anchors(text):
    """Of the headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = "".join(c for c in plain if c.isalnum() or c in " -_").replace(" ", "-")
        same = sum(1 for other in found if re.fullmatch(re.escape(anchor) + r"(-\d+)?", other))
        found.add(f"{anchor}-{same}" if same else anchor)
    return found


def links(text):
    plain = re.sub(r"`[^`\n]*`", "", without_code(text))
    return re.findall(r"\]\(([^)\s]+)\)", plain)


def problem(path, link):
    """What is wrong with a link in the document `path`; none when it leads somewhere."""
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists():
        return "there is no such file"
    if anchor and anchor not in anchors(target.read_text()):
        return "there is no such heading"
    return None


def names_of_files(text):
    """What stands in the type of code and looks like a file of the repository; {h,cpp} is both."""
    for name in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[^`\s]*)`", without_code(text)):
        if re.search(r"[A-Z*]{2}|\*|<", name) and not name.endswith(".md"):
            continue  # NAME, to be filled in
        braces = re.search(r"\{([^}]*)\}", name)
        for ending in braces[1].split(",") if braces else [""]:
            yield name[: braces.start()] + ending + name[braces.end() :] if braces else name


def own_files():
    yield from (p for p in ROOT.iterdir() if p.is_file())
    for folder in FOLDERS:
        for parent, folders, files in os.walk(ROOT / folder):
            folders[:] = [f for f in folders if f not in ("__pycache__", "golden", "truth")]
            yield from (ROOT / parent / name for name in files)


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        count = 0
        for path in doc_examples.documents():
            for link in links(path.read_text()):
                count += 1
                self.assertIsNone(problem(path, link), f"{path.relative_to(ROOT)}: {link}")
        self.assertGreater(count, 100)

    def test_every_file_that_is_named_exists(self):
        for path in doc_examples.documents():
            for name in names_of_files(path.read_text()):
                here = path.parent / name  # examples/ of a package are its own
                found = here.exists() or list(ROOT.glob(name.rstrip("/") + "*"))
                self.assertTrue(found, f"{path.relative_to(ROOT)}: {name}")

    def test_every_document_that_is_named_exists(self):
        for path in own_files():
            if path.suffix not in TEXT or path.name == "links_test.py":
                continue
            for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(errors="replace")):
                self.assertTrue((ROOT / name).exists(), f"{path.relative_to(ROOT)}: {name}")

    def test_every_document_can_be_found(self):
        """From the README, along links."""
        found, new = set(), [ROOT / "README.md"]
        while new:
            path = new.pop()
            found.add(path)
            for link in links(path.read_text()):
                target = (path.parent / link.partition("#")[0]).resolve()
                if target.suffix == ".md" and target.exists() and target not in found:
                    new.append(target)
        self.assertEqual(set(doc_examples.documents()) - found, set())

    def test_what_is_wrong_is_seen(self):
        readme = ROOT / "README.md"
        self.assertIsNone(problem(readme, "docs/verify.md#cost"))
        self.assertIsNone(problem(readme, "https://example.com/none"))
        self.assertEqual(problem(readme, "docs/none.md"), "there is no such file")
        self.assertEqual(problem(readme, "docs/verify.md#none"), "there is no such heading")
        self.assertEqual(anchors("# What `--a b` gives\n## A\n## A\n"), {"what---a-b-gives", "a", "a-1"})
        self.assertEqual(links("[a](b.md) `[c](d.md)`\n\n    [e](f.md)\n"), ["b.md"])


if __name__ == "__main__":
    unittest.main()
