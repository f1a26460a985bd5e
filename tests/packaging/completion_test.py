"""Completions and man pages, as the build makes them from the command line."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import unittest

import harness
from harness import CHECKPOINT_TARGETS, EXPERT_TARGETS, KERNEL_TARGETS

ALL_TARGETS = KERNEL_TARGETS + EXPERT_TARGETS + CHECKPOINT_TARGETS

DOCS = pathlib.Path(os.environ["PREPACK_CLI_DOCS"])
VERBS = "convert merge verify check diff plan tune inspect targets doctor help".split()
PAGES = ["prepack"] + [f"prepack-{verb}" for verb in VERBS]

# Divides the line as an interactive bash does: at the signs of COMP_WORDBREAKS, too.
BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_prepack
printf '%s\n' "${COMPREPLY[@]}"
"""


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Completion(harness.ToolTest):
    def bash(self, *words):
        """What bash offers for the last word of `prepack WORDS`."""
        result = subprocess.run(
            ["bash", "-c", BASH, "bash", DOCS / "bash" / "prepack", "prepack", *words],
            capture_output=True, text=True, check=True, cwd=self.scratch,
        )
        self.assertEqual(result.stderr, "")
        return result.stdout.split("\n")[:-1] if result.stdout.strip() else []

    def check_syntax(self, shell, path):
        result = subprocess.run(
            [shell, "-n", DOCS / path], capture_output=True, text=True, check=False
        )
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_syntax_of_bash(self):
        self.check_syntax("bash", "bash/prepack")

    @needs("zsh")
    def test_syntax_of_zsh(self):
        self.check_syntax("zsh", "zsh/_prepack")

    @needs("fish")
    def test_syntax_of_fish(self):
        self.check_syntax("fish", "fish/prepack.fish")

    def test_verbs(self):
        self.assertEqual(self.bash(""), VERBS)
        self.assertEqual(self.bash("con"), ["convert"])
        self.assertEqual(self.bash("help", "ver"), ["verify"])
        self.assertEqual(self.bash("--v"), ["--version"])

    def test_options_are_those_of_the_help(self):
        for verb in VERBS:
            offered = {o for o in self.bash(verb, "--") if o.startswith("--")}
            self.assertEqual(offered, self.options_of(verb), verb)
        self.assertEqual(self.bash("convert", "a", "--fo"), ["--force"])

    def options_of(self, verb):
        """The long options of a command, from the list in its help."""
        listed = self.run_ok(verb, "--help").stdout.partition("\nOptions:\n")[2]
        return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", listed, re.MULTILINE))

    def test_values(self):
        for verb in ("convert", "plan"):
            for words in (["-t", ""], ["--target", ""], ["--target", "="], ["--target", "=", ""]):
                self.assertEqual(self.bash(verb, "src", *words), [*ALL_TARGETS, "gguf"])
        self.assertEqual(self.bash("plan", "--target", "=", "zen"), ["zentorch"])
        self.assertEqual(self.bash("convert", "--onednn-form", "n"), ["native"])
        self.assertEqual(self.bash("convert", "--scheme", "mlp", "=", "w4"), ["w4a16", "w4a8"])
        self.assertEqual(self.bash("verify", "p", "--engine", "r"), ["reference"])
        self.assertEqual(self.bash("convert", "--jobs", ""), [])
        # The value of an option is not one of the next.
        self.assertEqual(self.bash("convert", "-t", "zentorch", "--dt"), ["--dtype"])

    def test_lists(self):
        self.assertEqual(self.bash("verify", "p", "--skip", "ex"), ["exactness"])
        self.assertEqual(
            self.bash("verify", "p", "--skip", "gemm,in"), ["gemm,integrity"]
        )

    def test_files_and_folders(self):
        (self.scratch / "model one").mkdir()
        (self.scratch / "model.safetensors").write_text("")
        self.assertEqual(self.bash("convert", "mod"), ["model one"])
        self.assertEqual(self.bash("convert", "x", "-o", "mod"), ["model one"])
        self.assertEqual(sorted(self.bash("inspect", "mod")), ["model one", "model.safetensors"])

    def fish(self, line):
        script = f"source {DOCS / 'fish' / 'prepack.fish'}; complete -C {shlex.quote(line)}"
        result = subprocess.run(
            ["fish", "--no-config", "-c", script], capture_output=True, text=True, check=True,
            cwd=self.scratch, env={**os.environ, "HOME": str(self.scratch)},
        )
        return [offer.split("\t")[0] for offer in result.stdout.splitlines()]

    @needs("fish")
    def test_fish(self):
        self.assertEqual(sorted(self.fish("prepack ")), sorted(VERBS))
        self.assertEqual(sorted(self.fish("prepack plan x --target ")), sorted([*ALL_TARGETS, "gguf"]))
        self.assertEqual(self.fish("prepack convert --fo"), ["--force"])
        self.assertEqual(self.fish("prepack verify p --skip gemm,in"), ["gemm,integrity"])
        (self.scratch / "model").mkdir()
        (self.scratch / "model.safetensors").write_text("")
        self.assertEqual(self.fish("prepack convert mod"), ["model/"])
        self.assertEqual(
            sorted(self.fish("prepack inspect mod")), ["model.safetensors", "model/"]
        )


class ManPages(harness.ToolTest):
    def test_there_is_one_per_command(self):
        self.assertEqual(
            sorted(os.listdir(DOCS / "man")), sorted(f"{page}.1" for page in PAGES)
        )

    def render(self, page):
        return subprocess.run(
            ["groff", "-man", "-Kutf8", "-Tutf8", "-P-cbou", "-ww", "-rLL=78n",
             DOCS / "man" / f"{page}.1"],
            capture_output=True, text=True, check=False,
        )

    @needs("groff")
    def test_they_render_without_warnings(self):
        for page in PAGES:
            result = self.render(page)
            self.assertEqual((result.returncode, result.stderr), (0, ""), page)
            self.assertIn("NAME", result.stdout)
            self.assertIn(f"prepack {self.run_ok('--version').stdout.strip()}", result.stdout)

    @needs("groff")
    def test_they_hold_what_the_help_holds(self):
        text = self.render("prepack-convert").stdout
        self.assertLess(text.index("EXAMPLES"), text.index("OPTIONS"))
        for words in (
            "prepack convert Llama-3-8B-W4A16 -o packed/ --target vllm-cpu", "-t, --target TARGET",
            "Values: vllm-cpu, zentorch, vllm-arm, onednn", "Default: blocked", "appears whole or not at all",
        ):
            self.assertIn(words, text)
        verify = self.render("prepack-verify").stdout
        self.assertIn("--min-sqnr 'mlp\\.down_proj=30'", verify)
        self.assertIn("--skip LEVEL[,LEVEL...]", verify)


    def test_errors(self):
        tool = os.environ["PREPACK_CLI_DOCS_TOOL"]
        (self.scratch / "file").write_text("")
        for args, code, text in (
            ([], 2, "error: cli_docs: no folder to write to"),
            ([self.scratch / "file"], 4, f"error: {self.scratch}/file/bash/prepack: cannot be"),
        ):
            result = subprocess.run([tool, *args], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, code)
            self.assertTrue(result.stderr.startswith(text), result.stderr)


class Help(harness.ToolTest):
    def test_help_of_a_command(self):
        for verb in VERBS:
            text = self.run_ok("help", verb).stdout
            self.assertEqual(text, self.run_ok(verb, "--help").stdout)
            self.assertLess(text.index("\nExamples:\n"), text.index("\nOptions:\n"), verb)
            self.assertIn(f"  prepack {verb}", text)

    def test_help_of_all(self):
        text = self.run_ok("help").stdout
        self.assertEqual(text, self.run_ok("--help").stdout)
        for verb in VERBS:
            self.assertRegex(text, rf"\n  {verb} +\w")

    def test_help_of_what_is_no_command(self):
        self.assert_fails(2, ["unknown subcommand", "Did you mean convert?"], "help", "convrt")

    def test_examples_are_commands(self):
        """Every option in an example is one of its command."""
        for verb in VERBS:
            examples = self.run_ok("help", verb).stdout.split("\nExamples:\n")[1]
            for line in re.findall(r"^  prepack (.*)$", examples.split("\n\n")[0], re.MULTILINE):
                words = line.split("|")[0].split()
                known = self.run_ok("help", words[0]).stdout
                for option in (w for w in words[1:] if w.startswith("-")):
                    self.assertRegex(known, rf"(?m)^  (-\w,)?{option}\b", line)


if __name__ == "__main__":
    unittest.main()
