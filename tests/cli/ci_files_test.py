"""The files for CI systems, run as those systems would run them: action.yml, the GitLab template, the hooks of
pre-commit. Of the Dockerfile: its build context is complete, and its image has the libraries that the program needs."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import yaml

import doc_examples
import harness
from harness import CHECKPOINTS, ROOT, TOOL

CI = ROOT / "integrations" / "ci"
MODULE = "model.layers.0.mlp.up_proj"


class CiTest(harness.ToolTest):
    def setUp(self):
        super().setUp()
        bin = self.scratch / "bin"
        bin.mkdir()
        (bin / "prepack").symlink_to(TOOL)
        self.path = f"{bin}:{os.environ['PATH']}"
        self.workspace = self.scratch / "workspace"
        self.workspace.mkdir()

    def put_model(self, checkpoint, name="model"):
        folder = self.workspace / name
        shutil.copytree(CHECKPOINTS / checkpoint, folder)
        return folder

    def break_scale(self, folder, value=b"\0\0"):
        """Zero in the first scale of a module: an error of the data."""
        path = folder / "model.safetensors"
        header, start = harness.read_header(path)
        at = start + header[MODULE + ".weight_scale"]["data_offsets"][0]
        data = bytearray(path.read_bytes())
        data[at : at + len(value)] = value
        path.write_bytes(data)


class Action(CiTest):
    """action.yml, step by step as the runner does it: expressions, bash's flags, outputs, summary."""

    def expression(self, text, context):
        """An expression without its braces; only what the file uses."""
        text = text.strip()
        for operator, result in (("==", True), ("!=", False)):
            left, found, right = text.partition(f" {operator} ")
            if found:
                return (self.expression(left, context) == self.expression(right, context)) == result
        if text.startswith("'"):
            return text.strip("'")
        value = context
        for key in text.split("."):
            value = value.get(key, "") if isinstance(value, dict) else ""
        return value

    def evaluate(self, text, context):
        whole = re.fullmatch(r"\$\{\{(.*)\}\}", text)
        if whole:
            return self.expression(whole[1], context)
        return re.sub(r"\$\{\{(.*?)\}\}", lambda m: str(self.expression(m[1], context)), text)

    def run_action(self, **inputs):
        """(code, what the steps printed, outputs of the action, summary)."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        inputs = {name.replace("_", "-"): value for name, value in inputs.items()}
        self.assertLessEqual(set(inputs), set(action["inputs"]))
        values = {name: inputs.get(name, of.get("default", "")) for name, of in action["inputs"].items()}
        for name, of in action["inputs"].items():
            self.assertTrue(not of.get("required") or values[name], name)
        context = {"inputs": values, "github": {"action_path": str(ROOT)}, "steps": {}}
        summary = self.scratch / "summary"
        summary.write_text("")
        output, code = "", 0
        for step in action["runs"]["steps"]:
            self.assertEqual(step["shell"], "bash")
            if code or not self.evaluate(step.get("if", "${{ 'x' == 'x' }}"), context):
                continue
            script, outputs = self.scratch / "step.sh", self.scratch / "outputs"
            script.write_text(step["run"])
            outputs.write_text("")
            env = {name: str(self.evaluate(value, context)) for name, value in step.get("env", {}).items()}
            result = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script], cwd=self.workspace,
                capture_output=True, text=True, check=False,
                env={"PATH": self.path, "HOME": str(self.scratch), "GITHUB_ACTIONS": "true", "CI": "true",
                     "GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary),
                     "GITHUB_WORKSPACE": str(self.workspace), **env},
            )
            code = result.returncode
            output += result.stdout + result.stderr
            lines = [line.partition("=") for line in outputs.read_text().splitlines()]
            context["steps"][step.get("id", "")] = {"outputs": {name: value for name, _, value in lines}}
        results = {name: self.evaluate(of["value"], context) for name, of in action["outputs"].items()}
        return code, output, results, summary.read_text()

    def annotations(self, output):
        """(kind, properties, message) of every command to the runner."""
        found = []
        for kind, properties, message in re.findall(r"^::(error|warning|notice) (.*?)::(.*)$", output, re.M):
            pairs = [one.partition("=") for one in properties.split(",")]
            found.append((kind, {name: value.replace("%3A", ":").replace("%2C", ",") for name, _, value in pairs},
                          message))
        return found

    def test_a_sound_model_passes(self):
        self.put_model("ct-w4a16-g128-sym")
        code, output, results, summary = self.run_action(source="model", target="vllm-cpu")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.annotations(output), [])
        reports = self.workspace / "prepack-reports"
        self.assertEqual(
            results, {"reports": "prepack-reports", "folder": "packed", "check-verdict": "sound",
                      "verify-verdict": "passed"},
        )
        for name in ("check", "verify"):
            self.checked_json((reports / f"{name}.json").read_text(), name)
            self.assertEqual(xml.etree.ElementTree.parse(reports / f"{name}.xml").getroot().findall(".//failure"), [])
            self.assertTrue((reports / f"{name}.html").is_file())
        self.assertIn("### ✅ prepack check: sound", summary)
        self.assertIn((reports / "verify.md").read_text(), summary)
        self.assertIn(MODULE, harness.manifest(self.workspace / "packed")["modules"])

    def test_only_what_is_asked_for_runs(self):
        self.put_model("ct-w4a16-g128-sym")
        code, _, results, _ = self.run_action(source="model")
        self.assertEqual((code, results["verify-verdict"], results["folder"]), (0, "", ""))
        self.assertFalse((self.workspace / "packed").exists())
        code, _, results, summary = self.run_action(source="model", target="onednn", check="false", output="out/p",
                                                    verify_options="--sample 0.3 --engine reference")
        self.assertEqual(code, 4)  # the folder of the output must exist
        (self.workspace / "out").mkdir()
        code, output, results, summary = self.run_action(
            source="model", target="onednn", check="false", output="out/p", reports="r e p",
            convert_options="--jobs 1 --no-flush", verify_options="--sample 0.3 --engine reference",
        )
        self.assertEqual((code, results["check-verdict"], results["verify-verdict"]), (0, "", "passed"), output)
        self.assertNotIn("prepack check", summary)
        self.assertLess(json.loads((self.workspace / "r e p/verify.json").read_text())["sample"]["fraction"], 1)

    def test_a_finding_is_shown_at_its_file(self):
        self.break_scale(self.put_model("ct-w4a16-g128-sym"))
        code, output, results, summary = self.run_action(source="model", target="vllm-cpu")
        self.assertEqual(code, 1)
        ((kind, properties, message),) = self.annotations(output)
        self.assertEqual((kind, properties),
                         ("error", {"file": "model/model.safetensors", "title": "prepack check: scale-zero"}))
        self.assertIn(f"tensor {MODULE}.weight_scale", message)
        self.assertEqual(results["check-verdict"], "bad values")
        self.assertIn("### ❌ prepack check: bad values", summary)
        self.assertIn("| error | `scale-zero` |", summary)
        self.assertFalse((self.workspace / "packed").exists())

    def test_what_is_accepted_passes_and_is_shown(self):
        self.break_scale(self.put_model("ct-w4a16-g128-sym"))
        code, output, results, summary = self.run_action(
            source="model", target="vllm-cpu", accept=f"scale-zero={MODULE}\n\nmodule-irregular\n",
        )
        self.assertEqual(code, 0, output)
        kinds = {(kind, properties["title"]) for kind, properties, _ in self.annotations(output)}
        self.assertEqual(kinds, {("notice", "prepack check: scale-zero (accepted)"),
                                 ("warning", "prepack check: accept-unused")})
        self.assertIn("| accepted | `scale-zero` |", summary)
        self.assertEqual(harness.manifest(self.workspace / "packed")["accepted"], [f"scale-zero={MODULE}"])
        self.assertEqual(results["verify-verdict"], "passed")

    def test_warnings_fail_only_if_strict(self):
        self.put_model("ct-mixed")
        code, output, _, _ = self.run_action(source="model")
        self.assertEqual(code, 0)
        ((kind, properties, _),) = self.annotations(output)
        self.assertEqual((kind, properties["title"]), ("warning", "prepack check: module-siblings-differ"))
        self.assertEqual(properties["file"], "model/model.safetensors")
        self.assertEqual(self.run_action(source="model", strict="true")[0], 1)
        self.assertEqual(self.run_action(source="model", strict="true", accept="module-siblings-differ")[0], 0)

    def test_files_of_findings_in_shards_and_configs(self):
        model = self.put_model("ct-w4a16-g128-sharded")
        shard = model / "model-00003-of-00003.safetensors"
        shard.write_bytes(shard.read_bytes()[:-8])
        code, output, _, _ = self.run_action(source="model")
        self.assertEqual(code, 3)
        self.assertEqual({p["file"] for _, p, _ in self.annotations(output)}, {f"model/{shard.name}"})
        config = json.loads((model / "config.json").read_text())
        config["quantization_config"]["quant_method"] = "nonsense"
        (model / "config.json").write_text(json.dumps(config))
        shutil.copy(CHECKPOINTS / "ct-w4a16-g128-sharded" / shard.name, shard)
        code, output, _, _ = self.run_action(source="model")
        self.assertEqual(code, 5)
        self.assertEqual({p["file"] for _, p, _ in self.annotations(output)}, {"model/config.json"})

    def test_a_model_outside_the_repository_has_no_file(self):
        self.break_scale(self.put_model("ct-w4a16-g128-sym", "../outside"))
        _, output, _, _ = self.run_action(source="../outside")
        ((_, properties, message),) = self.annotations(output)
        self.assertNotIn("file", properties)
        self.assertIn(MODULE, message)

    def test_errors_of_commands_are_annotations(self):
        code, output, _, _ = self.run_action(source="nothing")
        self.assertEqual(code, 4)
        ((kind, properties, message),) = self.annotations(output)
        self.assertEqual((kind, properties), ("error", {"title": "prepack check"}))
        self.assertIn("nothing", message)
        self.put_model("ct-w4a16-g128-sym")
        code, output, _, _ = self.run_action(source="model", target="nonsense")
        self.assertEqual(code, 2)
        ((_, properties, message),) = self.annotations(output)
        self.assertEqual(properties["title"], "prepack convert")
        self.assertIn("nonsense", message)

    def test_a_folder_that_is_not_the_model_fails(self):
        """As if the step between packing and verifying had done harm."""
        self.put_model("ct-w4a16-g128-sym")
        bin = self.scratch / "bin" / "prepack"
        bin.unlink()
        bin.write_text(
            f'#!/bin/bash\n{TOOL} "$@"; code=$?\n'
            'if [[ $1 == convert ]]; then printf "\\xff\\xff" | dd of=packed/model.safetensors bs=1 seek=40000 '
            "conv=notrunc status=none; fi\nexit $code\n"
        )
        bin.chmod(0o755)
        code, output, results, summary = self.run_action(source="model", target="vllm-cpu")
        self.assertEqual((code, results["verify-verdict"]), (1, "failed"), output)
        found = self.annotations(output)
        self.assertIn(("error", "prepack verify: integrity failed", "packed/model.safetensors"),
                      {(kind, p["title"], p["file"]) for kind, p, _ in found})
        self.assertIn("❌", summary)

    def test_installing_is_pip(self):
        self.put_model("ct-w4a16-g128-sym")
        python = self.scratch / "bin" / "python3"
        python.write_text(f'#!/bin/sh\nif [ "$2" = pip ]; then echo "$@" > {self.scratch}/pip; exit; fi\n'
                          f'exec {shutil.which("python3")} "$@"\n')
        python.chmod(0o755)
        self.assertEqual(self.run_action(source="model", install="prepack-llm[gemm] numpy")[0], 0)
        self.assertEqual((self.scratch / "pip").read_text(),
                         "-m pip install --disable-pip-version-check prepack-llm[gemm] numpy\n")

    def test_hostile_names_stay_text(self):
        """A name from a checkpoint can start no command of the runner and no cell of the summary."""
        model = self.put_model("ct-w4a16-g128-sym")
        config = json.loads((model / "config.json").read_text())
        config["quantization_config"]["x|y\n::error::injected`"] = 1
        (model / "config.json").write_text(json.dumps(config))
        _, output, _, summary = self.run_action(source="model")
        self.assertNotRegex(output, r"(?m)^::error::injected")
        for line in summary.splitlines():
            if line.startswith("| "):
                self.assertEqual(line.count("|"), 5, line)


class GitLab(CiTest):
    """gitlab.yml: the runner runs the lines of a script in one shell that ends with the first error."""

    def run_job(self, shell, **variables):
        job = yaml.safe_load((CI / "gitlab.yml").read_text())[".prepack"]
        self.assertLessEqual(set(variables), set(job["variables"]))
        script = "set -eo pipefail\n" if shell == "bash" else "set -e\n"
        script += "\n".join(job["script"])
        return job, subprocess.run(
            [shell], input=script, cwd=self.workspace, capture_output=True, text=True, check=False,
            env={"PATH": self.path, "HOME": str(self.scratch), "CI": "true", **job["variables"], **variables},
        )

    def test_in_every_shell(self):
        self.put_model("ct-w4a16-g128-sym")
        for shell in ("bash", "sh"):
            with self.subTest(shell):
                job, result = self.run_job(shell, PREPACK_OUTPUT=f"packed-{shell}",
                                           PREPACK_VERIFY_OPTIONS="--sample 0.5 --engine reference")
                self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
                for pattern in (job["artifacts"]["reports"]["junit"], "prepack-reports/*.html"):
                    self.assertEqual(len([*self.workspace.glob(pattern)]), 2)
                self.assertTrue((self.workspace / job["artifacts"]["paths"][0]).is_dir())

    def test_the_first_error_ends_it(self):
        self.break_scale(self.put_model("ct-w4a16-g128-sym"))
        for shell in ("bash", "sh"):
            _, result = self.run_job(shell)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertTrue((self.workspace / "prepack-reports" / "check.xml").is_file())
            self.assertFalse((self.workspace / "packed").exists())
        _, result = self.run_job("sh", PREPACK_ACCEPT=f"scale-zero={MODULE}.* module-irregular")
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertEqual(harness.manifest(self.workspace / "packed")["accepted"], [f"scale-zero={MODULE}.*"])


class PreCommit(CiTest):
    """The hooks, by the real pre-commit: it clones them from a repository and runs them on what is staged."""

    def git(self, *args, cwd=None):
        return subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main", *args],
            cwd=cwd or self.workspace, check=True, capture_output=True, text=True,
        ).stdout.strip()

    def setUp(self):
        super().setUp()
        hooks = self.scratch / "hooks"
        (hooks / "integrations").mkdir(parents=True)
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
        shutil.copytree(CI, hooks / "integrations" / "ci")
        self.git("init", cwd=hooks)
        self.git("add", "-A", cwd=hooks)
        self.git("commit", "-m", "hooks", cwd=hooks)
        self.hooks, self.revision = hooks, self.git("rev-parse", "HEAD", cwd=hooks)
        self.git("init")

    def use(self, hook, *args):
        config = {"repos": [{"repo": str(self.hooks), "rev": self.revision, "hooks": [{"id": hook, "args": [*args]}]}]}
        (self.workspace / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))

    def run_hooks(self):
        self.git("add", "-A")
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--verbose"], cwd=self.workspace, check=False,
            capture_output=True, text=True,
            env={**os.environ, "PATH": self.path, "PRE_COMMIT_HOME": str(self.scratch / "cache"),
                 },
        )

    def test_sound_and_broken(self):
        self.use("prepack-check")
        self.put_model("ct-w4a16-g128-sym")
        self.put_model("ct-w4a16-g128-sharded", "deep/er/sharded")
        (self.workspace / "config.json").write_text("{}")  # of something else
        (self.workspace / "tokenizer.txt").write_text("x")
        result = self.run_hooks()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for folder in ("model", "deep/er/sharded"):
            self.assertEqual(result.stdout.count(f"{folder}: compressed-tensors"), 1)
        self.git("commit", "-qm", "models", "--no-verify")
        # Only what changed is looked at.
        shard = self.workspace / "deep/er/sharded/model-00002-of-00003.safetensors"
        shard.write_bytes(shard.read_bytes()[:-4])
        result = self.run_hooks()
        self.assertEqual(result.returncode, 1)
        self.assertIn("deep/er/sharded", result.stdout)
        self.assertNotIn("model: compressed-tensors", result.stdout)

    def test_data_and_options(self):
        self.break_scale(self.put_model("ct-w4a16-g128-sym"))
        for hook, args, code in (
            ("prepack-check", [], 0),
            ("prepack-check-data", [], 1),
            ("prepack-check-data", ["--accept=scale-zero", "--"], 0),
        ):
            self.use(hook, *args)
            result = self.run_hooks()
            self.assertEqual(result.returncode, code, f"{hook} {args} {result.stdout}{result.stderr}")

    def test_what_is_no_quantized_checkpoint_is_left_alone(self):
        self.use("prepack-check")
        shutil.copytree(CHECKPOINTS.parent / "float-bf16", self.workspace / "float")
        self.put_model("ct-w4a16-g128-sym", "source")
        self.run_ok("convert", self.workspace / "source", "-o", self.workspace / "packed", "-t", "vllm-cpu")
        shutil.rmtree(self.workspace / "source")
        result = self.run_hooks()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("Passed", result.stdout)
        self.assertNotIn("compressed-tensors", result.stdout)


class Image(CiTest):
    """No registry is needed for this, and none is asked: no layer is built."""

    TEXT = re.sub(r" *\\\n *", " ", (ROOT / "Dockerfile").read_text())

    def lines(self, word):
        return [line.split()[1:] for line in self.TEXT.splitlines() if line.startswith(word + " ")]

    def test_the_build_context_is_what_the_build_needs(self):
        """CMake configures a copy of what the COPY lines name."""
        copied = [line for line in self.lines("COPY") if not line[0].startswith("--from")]
        allowed = (ROOT / ".dockerignore").read_text().split()
        context = self.scratch / "src"
        context.mkdir()
        for *sources, target in copied:
            for source in sources:
                self.assertIn(f"!{source}", allowed)
                if (ROOT / source).is_dir():
                    self.assertEqual(target, f"/src/{source}")
                    (context / source).symlink_to(ROOT / source)
                else:
                    self.assertEqual(target, "/src/")
                    shutil.copy(ROOT / source, context)
        self.assertEqual({one.removeprefix("!") for one in allowed} - {"*"},
                         {source for *sources, _ in copied for source in sources})
        # The script builds what CMake can configure there: no tests, no benchmarks.
        self.assertEqual([["packaging/portable/build", "/build"]],
                         [line[:2] for line in self.lines("RUN") if line[0] not in ("apt-get", "useradd")])
        options = ["-G", "Ninja", "-DBUILD_TESTING=OFF", "-DPREPACK_BENCH=OFF", "-DPREPACK_ONEDNN=OFF"]
        result = subprocess.run(["cmake", "-S", context, "-B", self.scratch / "build", *options],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("CMake Warning", result.stderr)
        targets = subprocess.run(["cmake", "--build", self.scratch / "build", "--target", "help"],
                                 capture_output=True, text=True, check=True).stdout
        self.assertIn("prepack: phony", targets)
        self.assertNotIn("test_main", targets)

    def test_the_image_needs_no_library(self):
        """The program is static, so its stage installs nothing."""
        final = self.TEXT[self.TEXT.rindex("\nFROM ") :]
        self.assertNotIn("apt-get", final)
        self.assertIn("COPY --from=build /build/install /usr/local\n", final)
        self.assertIn("-static", (ROOT / "packaging" / "portable" / "build").read_text())

    def test_packages_of_the_build_are_those_of_setup(self):
        setup = (ROOT / "tools" / "setup").read_text()
        build = re.search(r"--no-install-recommends (.*?)$", self.TEXT, re.M)[1].split()
        # zig compiles for the other platform; binutils strip the program, on whichever machine.
        for package in set(build) - {"binutils-aarch64-linux-gnu", "binutils-x86-64-linux-gnu"}:
            self.assertIn(package, setup)

    def test_the_program_is_for_the_platform_that_is_asked_for(self):
        script = re.search(r'^RUN packaging/portable/build /build "\$\((.*)\)"$', self.TEXT, re.M)[1]
        for platform, processor in (("amd64", "x86_64"), ("arm64", "aarch64"), ("", "x86_64")):
            result = subprocess.run(["sh", "-c", script], env={"TARGETARCH": platform}, capture_output=True, text=True,
                                    check=True)
            self.assertEqual(result.stdout, processor + "\n")

    def test_it_runs_without_rights(self):
        final = self.TEXT[self.TEXT.rindex("\nFROM ") :]
        self.assertRegex(final, r"\nUSER (?!root|0)\w+\n")
        self.assertLess(final.index("useradd"), final.index("\nUSER"))
        self.assertIn('ENTRYPOINT ["prepack"]', final)
        self.assertEqual(re.findall(r"^FROM (?:--\S+ )?(\S+)", self.TEXT, re.M), ["debian:12-slim"] * 2)


class Examples(unittest.TestCase):
    """What docs/ci.md shows of these files."""

    def test_names_are_those_of_the_files(self):
        docs = (ROOT / "docs" / "ci.md").read_text()
        blocks = [yaml.safe_load(text) for text in doc_examples.blocks(docs, "yaml")]
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        (workflow,) = [b for b in blocks if "pack" in b.get("jobs", {})]
        (step,) = [s for s in workflow["jobs"]["pack"]["steps"] if s["uses"].startswith("OWNER/prepack@")]
        self.assertLessEqual(set(step["with"]), set(action["inputs"]))
        for name in action["inputs"]:
            self.assertIn(f"`{name}`", docs)
        for name in action["outputs"]:
            self.assertIn(f"`{name}`", docs)
        (template,) = [b for b in blocks if "include" in b]
        job = yaml.safe_load((CI / "gitlab.yml").read_text())[template["pack"]["extends"]]
        self.assertLessEqual(set(template["pack"]["variables"]), set(job["variables"]))
        self.assertTrue((ROOT / template["include"][0]["file"]).is_file())
        (config,) = [b for b in blocks if "repos" in b]
        hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
        self.assertLessEqual({hook["id"] for hook in config["repos"][0]["hooks"]}, hooks)


class Annotate(unittest.TestCase):
    def test_usage(self):
        for args in ([], ["check"], ["nonsense", "x"], ["error", "x"]):
            result = subprocess.run(["python3", CI / "annotate.py", *args], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn("annotate.py check", result.stderr)

    def test_a_report_that_was_not_written_says_nothing(self):
        for text in ("", "{"):
            path = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"prepack-annotate-{os.getpid()}.json"
            path.write_text(text)
            self.addCleanup(path.unlink, missing_ok=True)
            for command in ("check", "verify"):
                result = subprocess.run(["python3", CI / "annotate.py", command, path], capture_output=True, text=True)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
