"""The commands and programs in the documents run, and print what the documents show.

Every page gets a scratch folder with copies of the bundled checkpoints that it names. Its examples run
in their order, in one and the same folder:

- Lines with `$ ` in front are commands; the lines below are all that they print (stdout and stderr).
- Blocks without `$` whose first word is a program are commands that must succeed.
- Every command ends with 0, unless its comment says `ends with 1`, or so, or the next one is `echo $?`,
  which shows how it ended.
- Fenced code whose first line is a comment with the name of a file is written to that file.
- C++ must be an excerpt of a file of this repository.

Paths into the scratch folder are shown as if it were /models.

With PREPACK_PYTHON, the examples use the package that is installed for that Python, and PREPACK_TOOL names the
program that is installed: tests/packaging/released runs them so on the files of a release.

`docs_test.py --update [PAGE...]` writes what the commands print into the documents.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import doc_examples
import harness
from harness import CHECKPOINTS, ROOT, TOOL

PYTHON = os.environ.get("PREPACK_PYTHON")  # none: this one, with the package of the sources
PAGES = [p for p in doc_examples.documents() if p.name != "CHANGELOG.md"]

# Names for readers, and the bundled checkpoints that stand in for them.
STAND_INS = {
    "Llama-3-8B": ROOT / "fixtures" / "float-bf16",
    "Llama-3-8B-AWQ": CHECKPOINTS / "awq-gemm-g128",
    "Llama-3-8B-W4A16": CHECKPOINTS / "ct-w4a16-g128-sym",
    "float-bf16": ROOT / "fixtures" / "float-bf16",
    "SOURCE": CHECKPOINTS / "ct-w4a16-g32-asym",
    "model": CHECKPOINTS / "ct-w4a16-g32-asym",
    "model.gguf": ROOT / "fixtures" / "gguf" / "model.gguf",
}

# What cannot run here: why, and patterns of whole commands. Options of prepack in them are held against
# its help all the same.
NOT_RUN = {
    "needs a model on a server: tests/integrations/remote_test.py and tests/cli/flow_test.py have one": (
        r"prepack-remote .*", r"prepack convert .* --(fetch|done) .*", r"pip install 'prepack-llm\[remote\]'",
    ),
    "packs and installs this build: tests/packaging does": (
        r"cd build/release && cpack", r"cmake --install build/release .*", r"pip install \.",
        r"pip install (prepack_llm-0.*|--find-links .*)", r"tar -xf prepack-.*", r"prepack-0.*", r"apt install \./.*",
    ),
    "needs an installed prepack: tests/packaging/install_test.py builds the example": (
        r"cmake -S .*", r"g\+\+ .*", r"PKG_CONFIG_PATH=.*", r"build/read_tensor .*",
    ),
    "makes checkpoints of many gigabytes": (
        r"build/release/bin/generate_checkpoint (.|\n)*", r"build/release/bin/prepack convert source .*",
        r"bench/vllm_start\.py .*",
    ),
    "builds, installs, measures or tests, for minutes": (
        r"tools/.*", r"~/.*/python bench/.*", r"integrations/vllm/(run_tests|matrix/run).*", r"tests/packaging/re.*",
        r"cmake --(preset|build) .*",
    ),
    "needs a cluster, or GNU parallel: scale_docs_test.py and tests/scale run what the files do": (
        r"slurm_submit .*", r"kubectl .*", r"(HOSTS=\S+ )?gnu_parallel\.sh .*",
    ),
    "needs vLLM, or a model of 30B parameters: integrations/vllm/run_tests": (
        r"pip install (--no-deps|torch).*", r"vllm .*", r"python -m (vllm|prepack_vllm)\..*",
        r"python (faults|processed_weights)\.py.*",
        r"prepack convert Qwen3-30B-A3B-W4A16 .*",
    ),
    "needs llama.cpp: tests/cli/gguf_convert_test.py and gguf_source_test.py have a stand-in": (
        r"prepack \w+ .*--llama-cpp .*", r"prepack verify model.gguf .*", r"pip install -r llama.cpp/.*",
        r"prepack \w+ .*\.gguf.* --like .*", r"prepack plan model.gguf .*", r"prepack diff .*\.gguf",
        r"prepack inspect \w+.gguf --(find|values) .*",
    ),
    "needs a model in a hub cache: tests/cli/hub_test.py makes one": (r"prepack \w+ Qwen/.*", r"prepack verify .* Qwen/.*"),
    "judges what is installed on the machine: tests/cli/doctor_test.py makes environments": (
        r"prepack doctor.*",
    ),
    "measures this machine: tests/cli/tune_test.py": (r"prepack tune.*",),
    "needs Docker": (r"docker .*",),
    "needs SGLang with KTransformers": (r"python -m sglang[^$]*",),
    "needs zentorch": (r"python3 zentorch_linear.py .*",),
    "needs recorded activations: tests/cli/verify_test.py makes some": (
        r"prepack verify .*--activations .*",
    ),
}  # fmt: skip

# Options of other programs: prepack_vllm.record, cmake, tools/bench, tools/soak, tools/test, generate_checkpoint, sbatch, vLLM, SGLang.
FOREIGN_OPTIONS = {
    "--component", "--cold", "--only-sizes", "--scale-to", "--list", "--tsan", "--embeddings", "--experts",
    "--sparse", "--array", "--requeue", "--load-format", "--runner", "--speculative-config", "--tensor-parallel-size",
    "--safetensors-load-strategy", "--kt-method", "--kt-weight-path", "--kt-cpuinfer",
    "--kt-threadpool-count", "--kt-num-gpu-experts", "--load", "--checkpoints",
    "--runtime", "--expert-rows", "--connections", "--plan", "--side-files", "--scratch",
}  # fmt: skip

EXAMPLES = ("read_tensor", "onednn_consumer")  # programs of examples/, which no package brings
PROGRAMS = {
    "prepack", "prepack-remote", "read_tensor", "onednn_consumer", "python", "python3", "cmake", "cpack", "ctest", "pip",
    "g++", "cd", "rm", "cp", "jq", "head", "git", "sbatch", "slurm_submit", "gnu_parallel.sh", "kubectl",
    "vllm", "docker", "tar", "apt",
}  # fmt: skip


@dataclasses.dataclass
class Varying:
    """A piece of output that need not be as shown: group 1 of `pattern`."""

    pattern: str
    why: str
    tolerance: float = None  # of the numbers in it, in their order; none: it may be anything


VARYING = [
    Varying(r"(?<=on )(\d+ threads?)\b", "one per CPU"),
    Varying(r"(?<=most )([\d.]+ [kMG]?B)(?= of memory)", "by the number of threads"),
    Varying(r"(?<=\bonednn )(\d+\.\d+\.\d+)", "the oneDNN that is installed"),
    # The last bits of sums depend on the CPU: here and there they round the other way. Channels that
    # are nearly equally bad change places.
    Varying(r"  (?:yes|no) +\S+( +[\d.]+ +[\d.]+ +n \d+: [\d.]+)  ", "verify: dB by the CPU", 0.5),
    Varying(r"scale diff( +kernel dB +end-to-end dB +worst channel)", "the head of that table"),
    Varying(r"(?:kernel|end to end) ([\d.]+)(?= dB)", "verify: dB by the CPU", 0.5),
]


def split_varying(line):
    """`line` without what may vary, and what that was: [(piece, tolerance)]."""
    pieces = []
    for varying in VARYING:

        def replace(match, varying=varying):
            pieces.append((match[1], varying.tolerance))
            begin, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:begin] + f"<{varying.why}>" + match[0][end:]

        line = re.sub(varying.pattern, replace, line)
    return line, pieces


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def close(left, right, tolerance):
    return len(left) == len(right) and all(abs(a - b) <= tolerance for a, b in zip(left, right))


def same_line(shown, printed):
    (shown, of_shown), (printed, of_printed) = split_varying(shown), split_varying(printed)
    if shown != printed or len(of_shown) != len(of_printed):
        return False
    return all(
        tolerance is None or close(numbers(left), numbers(right), tolerance)
        for (left, tolerance), (right, _) in zip(of_shown, of_printed)
    )


def same(shown, printed):
    return len(shown) == len(printed) and all(map(same_line, shown, printed))


def bare(command):
    """Without its comment."""
    return re.sub(r"\s+(#.*)?$", "", command.text)


def beside_tool(program):
    return pathlib.Path(TOOL).with_name(program)


def reason_not_run(command):
    text = bare(command)
    program = text.split()[0]
    if program in EXAMPLES and not beside_tool(program).exists():
        return "nothing installs it"
    reasons = (why for why, patterns in NOT_RUN.items() for p in patterns if re.fullmatch(p, text))
    return next(reasons, None)


def is_program(word):
    return word in PROGRAMS or re.match(r"(tools|tests|bench|build|integrations|examples)/|[A-Z_]+=", word)


def commands_of(block):
    if block.language not in ("", "console") or not block.lines:
        return []
    if any(line.startswith("$ ") for line in block.lines):
        return doc_examples.session(block)
    return doc_examples.command_list(block) if is_program(block.lines[0].split()[0]) else []


def has_commands(block):
    return any(line and is_program(line.split()[0]) for line in block.lines)


def file_of(block):
    """The name of the file that a fenced block is, or none."""
    name = re.match(r"(?:#|//) ([\w-]+\.(?:py|cpp|txt))$", block.lines[0]) if block.lines else None
    return name[1] if name and block.language else None


class Page:
    """Runs a document in a scratch folder."""

    def __init__(self, path, scratch):
        self.path, self.scratch = path, scratch
        self.text = path.read_text()
        self.blocks = doc_examples.code_blocks(self.text)
        self.code = 0  # of the last command
        self.folder = scratch / "page"
        self.folder.mkdir()
        self.programs = scratch / "bin"
        self.programs.mkdir()
        self.add_programs()
        self.add_checkpoints()

    def add_programs(self):
        for name in ("prepack", *EXAMPLES):
            if beside_tool(name).exists():
                (self.programs / name).symlink_to(beside_tool(name))
        for name in ("python", "python3"):  # by a link, an environment would not be found
            (self.programs / name).write_text(f'#!/bin/sh\nexec "{PYTHON or sys.executable}" "$@"\n')
            (self.programs / name).chmod(0o755)

    def add_checkpoints(self):
        named = {path.name: path for path in CHECKPOINTS.iterdir()} | STAND_INS
        words = {w for block in self.blocks for line in block.lines for w in re.split(r"[^\w.-]", line)}
        for name in words & set(named):
            copy = shutil.copytree if named[name].is_dir() else shutil.copy
            copy(named[name], self.folder / name)
        examples = ROOT / "integrations" / "python" / "examples"
        for path in (*examples.iterdir(), *self.path.parent.glob("*.py")):
            shutil.copy(path, self.folder)

    def commands(self):
        """All that can be run, in the order of the page; files are written on the way."""
        for block in self.blocks:
            if file_of(block):
                (self.folder / file_of(block)).write_text("\n".join(block.lines) + "\n")
            for command in commands_of(block):
                yield command

    def run(self, command):
        """The lines that it prints; `code` is how it ended."""
        path = f"{self.programs}:{os.environ['PATH']}"
        result = subprocess.run(
            ["bash", "-c", f"(exit {self.code}); {command.text}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            cwd=self.folder, timeout=300, check=False,
            env={
                **{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")},
                "PATH": path, "HOME": str(self.scratch), "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": "" if PYTHON else str(ROOT / "integrations" / "python" / "src"),
            },
        )
        self.code = result.returncode
        printed = result.stdout.replace(str(self.folder), "/models").rstrip("\n")
        return [line.rstrip() for line in printed.split("\n")] if printed else []

    def run_all(self):
        """(command, what it printed, how it had to end or none) of all that runs, and what does not."""
        commands = list(self.commands())
        for command, after in zip(commands, [*commands[1:], None]):
            if reason_not_run(command) is not None:
                continue
            shows_code = after is not None and after.text == "echo $?"
            ends_with = re.search(r"#.*\bends with (\d+)", command.text)
            printed = self.run(command)
            yield command, printed, None if shows_code else int(ends_with[1]) if ends_with else 0

    def updated(self):
        lines = self.text.split("\n")
        for command, printed, _ in reversed(list(self.run_all())):
            if command.output is not None and not same(command.output, printed):
                first, end = command.shown
                indent = "    " if lines[command.line].startswith("    ") else ""
                lines[first:end] = [indent + line if line else "" for line in printed]
        return "\n".join(lines)


def relative(path):
    return str(path.relative_to(ROOT))


def call_words(text):
    """Every call of prepack in the code of a document, in blocks and in its sentences."""
    spans = re.findall(r"`(prepack [^`]*)`", text)
    lines = [bare(c) for b in doc_examples.code_blocks(text) for c in commands_of(b)]
    return doc_examples.commands("\n".join(spans + lines))


class Documents(harness.ToolTest):
    @harness.needs_onednn
    @harness.not_with_sanitizers("other tests run the same commands")
    def test_commands_print_what_is_shown(self):
        for path in PAGES:
            with self.subTest(page=relative(path)), tempfile.TemporaryDirectory() as scratch:
                page = Page(path, pathlib.Path(scratch))
                for command, printed, code in page.run_all():
                    self.check(page, command, printed, code)
                if path.parent.name == "layouts":
                    self.check_layout(page)

    def check(self, page, command, printed, code):
        where = f"{relative(page.path)}:{command.line + 1}: {command.text}\n" + "\n".join(printed)
        if code is not None:
            self.assertEqual(page.code, code, where)
        if command.output is not None and not same(command.output, printed):
            update = f"PREPACK_TOOL={TOOL} {sys.executable} tests/cli/docs_test.py --update {relative(page.path)}"
            self.assertEqual(command.output, printed, f"{where}\n(once what it prints is right: {update})")

    def check_layout(self, page):
        """The commands of its page show the layout itself."""
        layout = page.text.split("\n")[0].removeprefix("# ")
        if "never chooses it" not in page.text and page.path.name != "README.md":
            self.assertEqual(list(harness.manifest(page.folder / "packed")["layouts"]), [layout])

    def test_exceptions_are_in_the_documents(self):
        """None outlives what it is for."""
        blocks = [block for path in PAGES for block in doc_examples.code_blocks(path.read_text())]
        commands = [bare(command) for block in blocks for command in commands_of(block)]
        for pattern in (p for patterns in NOT_RUN.values() for p in patterns):
            self.assertTrue(any(re.fullmatch(pattern, command) for command in commands), pattern)
        words = {word for command in commands for word in command.split()}
        self.assertEqual(set(STAND_INS) - words, set())
        lines = [line for block in blocks for line in block.lines]
        for varying in VARYING:
            self.assertTrue(any(re.search(varying.pattern, line) for line in lines), varying.pattern)

    def test_every_option_exists(self):
        known = {}
        for path in PAGES:
            for name, options in call_words(path.read_text()):
                if name not in known:
                    known[name] = self.help_options(name)
                self.assertLessEqual(set(options), known[name], f"{relative(path)}: prepack {name}")
        self.assertEqual(len(known), 10)
        options = set().union(*known.values()) | FOREIGN_OPTIONS
        for path in PAGES:
            named = re.findall(r"`(--[a-z-]+)", path.read_text())
            self.assertEqual(set(named) - options, set(), relative(path))

    def test_code_is_run_or_compared(self):
        """bash and yaml are in the page that a test of its own reads; C++ is that of a file here."""
        sources = [
            " ".join(path.read_text().split())
            for part in ("examples", "libconvert")
            for path in (ROOT / part).rglob("*")
            if path.suffix in (".cpp", ".h", ".txt", ".inc")
        ]
        for path in PAGES:
            for block in doc_examples.code_blocks(path.read_text()):
                where = f"{relative(path)}:{block.first}"
                if block.language in ("bash", "yaml"):
                    self.assertEqual(path.name, "ci.md", where)
                elif block.language in ("cpp", "cmake"):
                    code = " ".join(" ".join(block.lines).split())
                    self.assertTrue(any(code in source for source in sources), where)
                elif block.language == "python":
                    self.assertIsNotNone(file_of(block), f"{where}: begin with the name of the file")
                else:
                    self.assertIn(block.language, ("", "console"), where)
                    self.assertTrue(commands_of(block) or not has_commands(block), where)

    def test_the_chart_shows_the_figures(self):
        """Those of the table that it was made from, which the README's first lines name, too."""
        chart = subprocess.run([ROOT / "bench" / "load_chart.py"], capture_output=True, text=True, check=True)
        self.assertEqual((ROOT / "docs" / "load_time.svg").read_text(), chart.stdout)
        lead = (ROOT / "README.md").read_text().split("![")[0]
        for figure in ("0.16 s", "58.2 s", "42 MiB", "6,714 MiB"):
            self.assertIn(figure, lead)
            self.assertIn(f">{figure}<", chart.stdout)

    def test_lines_are_not_too_long(self):
        """Of sentences; what is generated (docs/layouts/) has the lines of its tables."""
        for path in PAGES:
            text = path.read_text()
            blocks = doc_examples.code_blocks(text)
            code = {n for b in blocks for n in range(b.first, b.first + len(b.lines))}
            for number, line in enumerate(text.split("\n")):
                if number not in code and "|" not in line and path.parent.name != "layouts":
                    self.assertLessEqual(len(line), 120, f"{relative(path)}:{number + 1}")

    def test_comparison(self):
        """What varies may; nothing else."""
        row = "a.b  vllm-cpu/wna16  yes  0.0e+00  55.4  51.0  n 223: 52.6  model of vllm-cpu/wna16"
        self.assertTrue(same_line(row, row.replace("55.4  51.0  n 223", "55.1  51.0  n 7")))
        self.assertFalse(same_line(row, row.replace("55.4", "45.4")))
        self.assertFalse(same_line(row, row.replace("yes", "no")))
        self.assertFalse(same_line(row, row.replace("model of", "oneDNN on")))
        self.assertTrue(same_line("at most 1 B of memory on 2 threads", "at most 9.0 MB of memory on 64 threads"))
        self.assertFalse(same_line("needs 2.0 MB of disk", "needs 2.1 MB of disk"))


def update(names):
    for path in [pathlib.Path(name).resolve() for name in names] or PAGES:
        with tempfile.TemporaryDirectory() as scratch:
            text = Page(path, pathlib.Path(scratch)).updated()
        if text != path.read_text():
            path.write_text(text)
            print(relative(path))


if __name__ == "__main__":
    if "--update" in sys.argv[1:]:
        update([word for word in sys.argv[1:] if word != "--update"])
    else:
        unittest.main()
