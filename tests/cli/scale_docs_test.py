"""docs/scale.md and the files of integrations/scale/: they do what the page says, with a Slurm that runs everything
at once. tests/scale/ runs them on a real one."""

import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    yaml = None

import doc_examples
import harness
from harness import CHECKPOINTS, ROOT, TOOL

DOCS = (ROOT / "docs" / "scale.md").read_text()
FILES = ROOT / "integrations" / "scale"
SOURCE = CHECKPOINTS / "ct-w4a16-g32-asym"
PARTS = 3

# Runs the tasks of an array one after the other, and a job that depends on one that failed never.
SBATCH = r"""#!/usr/bin/env bash
set -euo pipefail
tasks= after= script=
while [[ $1 == --* ]]; do
  case $1 in
    --array=1-*) tasks=$(seq "${1#--array=1-}") ;;
    --dependency=afterok:*) after=${1##*:} ;;
    --parsable | --kill-on-invalid-dep=yes) ;;
    *) echo "sbatch: unknown option $1" >&2; exit 1 ;;
  esac
  shift
done
script=$1
shift
id=$(($(ls "$JOBS_DIR" | grep -c '^[0-9]*$' || true) + 1))
echo "$after" > "$JOBS_DIR/$id"
if [[ -n $after && -e $JOBS_DIR/$after.failed ]]; then
  touch "$JOBS_DIR/$id.failed"
  echo "$id"
  exit
fi
for task in ${tasks:-none}; do
  SLURM_ARRAY_TASK_ID=$task SLURM_CPUS_PER_TASK=2 bash "$script" "$@" >> "$JOBS_DIR/log" 2>&1 ||
    touch "$JOBS_DIR/$id.failed"
done
echo "$id${CLUSTER:-}"
"""


def read_job(name):
    """The Job of a file, and its container."""
    job = yaml.safe_load((FILES / name).read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return job, container


class Documents(harness.ToolTest):
    def test_every_file_is_named(self):
        for path in FILES.iterdir():
            self.assertIn(f"](../integrations/scale/{path.name})", DOCS)

    def test_every_option_exists(self):
        calls = doc_examples.commands("\n".join([DOCS, *(path.read_text() for path in FILES.iterdir())]))
        self.assertGreater(len(calls), 8)
        for subcommand, options in calls:
            if subcommand in ("convert", "merge", "plan", "verify"):
                self.assertLessEqual(set(options), self.help_options(subcommand), subcommand)

    def test_figures_follow_from_the_rates(self):
        number = r" ([\d.]+) \|"
        rows = re.findall(rf"^\|{number * 7}$", DOCS, re.MULTILINE)
        self.assertEqual([int(row[0]) for row in rows], [1, 8, 16, 32, 64])
        size = 213.6
        for parts, share, read, alone, shared, together, trusting in rows:
            count = int(parts)
            each = size / count
            columns = math.ceil(math.sqrt(count))
            seen = [  # how many shares each part reads
                sum(a // columns == b // columns or a % columns == b % columns for b in range(count))
                for a in range(count)
            ]
            self.assertAlmostEqual(float(share), each, delta=0.05 + 1e-9)
            self.assertAlmostEqual(float(read), max(seen) * each, delta=0.05 + 1e-9)
            self.assertEqual(int(alone), round(max(seen) * each / 1 + each / 0.5))
            self.assertEqual(int(shared), round(sum(seen) * each / 20 + size / 10))
            self.assertEqual(int(together), max(int(alone), int(shared)))
            self.assertEqual(int(trusting), max(round(each / 1 + each / 0.5), round(size / 20 + size / 10)))


    def test_figures_of_object_stores_follow_from_the_rates(self):
        number = r" ([\d.]+) \|"
        rows = re.findall(rf"^\|{number * 10}$", DOCS, re.MULTILINE)
        self.assertEqual([int(row[0]) for row in rows], [1, 8, 64])
        size, network, pack, store, copy = 1500, 0.3, 2.5, 10, 5
        for nodes, *found in rows:
            each = size / int(nodes)
            node, shared = 2 * each / network + each / pack, 2 * size / store
            expected = [each / network, each / pack, each / network, node, shared, max(node, shared), size / copy,
                        max(2 * each / network, shared)]
            self.assertAlmostEqual(float(found[0]), each, delta=0.05 + 1e-9)
            self.assertEqual([int(figure) for figure in found[1:]], [round(figure) for figure in expected])


class PathTest(harness.ToolTest):
    """With a `prepack` on the PATH, and parts of an output."""

    def setUp(self):
        super().setUp()
        self.bin = self.scratch / "bin"
        self.bin.mkdir()
        (self.bin / "prepack").symlink_to(TOOL)
        (self.scratch / "with space").mkdir()
        self.out = self.scratch / "with space" / "out"

    def env(self):
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def part(self, index):
        return self.out.with_name(f"out.part-{index:05}-of-{PARTS:05}")

    def assert_merged(self, *options):
        whole = self.convert(SOURCE, "vllm-cpu", *options, name="whole")
        self.assertEqual(harness.hashes(self.out), harness.hashes(whole))
        self.run_ok("verify", self.out, "--source", SOURCE)
        self.assertEqual([p.name for p in self.out.parent.iterdir()], ["out"])


class ScriptsTest(PathTest):
    def setUp(self):
        super().setUp()
        self.jobs = self.scratch / "jobs"
        self.jobs.mkdir()
        (self.bin / "sbatch").write_text(SBATCH)
        (self.bin / "sbatch").chmod(0o755)

    def script(self, name, *args, code=0, **env):
        result = subprocess.run(
            [*(["bash"] if name.endswith(".sbatch") else []), FILES / name, *map(str, args)],
            capture_output=True, text=True, check=False, cwd=self.scratch,
            env={**self.env(), "JOBS_DIR": str(self.jobs), **env},
        )
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        return result

    def block_part(self, index):
        """Part `index` cannot be written: what stands there is no part."""
        self.part(index).mkdir()
        (self.part(index) / "precious").write_text("years")


class Scripts(ScriptsTest):
    def test_slurm(self):
        args = (SOURCE, self.out, "vllm-cpu", PARTS, "--scales", "exact")
        result = self.script("slurm_submit", *args, CLUSTER=";one")
        self.assertEqual(result.stdout, "parts 1 merge 2 verify 3 verdict 4\n")
        self.assertEqual([(self.jobs / job).read_text() for job in "1234"], ["\n", "1\n", "2\n", "3\n"])
        log = (self.jobs / "log").read_text()
        self.assertEqual(len(re.findall(r"^part [123]/3: \d+ measurements in .*/out.verify/[123].json$", log, re.M)), 3)
        self.assertIn(self.run_ok("verify", self.out, "--source", SOURCE).stdout, log)
        self.assert_merged("--scales", "exact")

    def test_slurm_keeps_the_reports_of_a_folder_that_does_not_pass(self):
        self.script("slurm_submit", SOURCE, self.out, "vllm-cpu", PARTS)
        header, start = harness.read_header(self.out / "model-00001-of-00003.safetensors")
        harness.flip(self.out / "model-00001-of-00003.safetensors", start, 0)
        self.assertGreater(len(header), 0)
        reports = self.out.with_name("out.verify")
        reports.mkdir()
        for task in range(1, PARTS + 1):
            self.script("slurm_verify.sbatch", SOURCE, self.out, PARTS, SLURM_ARRAY_TASK_ID=str(task))
        result = self.script("slurm_verdict.sbatch", SOURCE, self.out, code=1)
        self.assertEqual(result.stdout, self.run_tool("verify", self.out, "--source", SOURCE).stdout)
        self.assertEqual(sorted(p.name for p in reports.iterdir()), ["1.json", "2.json", "3.json"])

    def test_slurm_again_after_a_failure(self):
        args = (SOURCE, self.out, "vllm-cpu", PARTS)
        self.block_part(2)
        self.script("slurm_submit", *args)
        for job in "1234":
            self.assertTrue((self.jobs / f"{job}.failed").exists())
        self.assertTrue(self.part(1).exists() and self.part(3).exists())
        self.assertFalse(self.out.exists())
        shutil.rmtree(self.part(2))
        for file in self.jobs.iterdir():
            file.unlink()
        self.script("slurm_submit", *args)
        self.assertEqual((self.jobs / "log").read_text().count("is complete already"), 2)
        self.assert_merged()

    def test_a_missing_argument_is_usage(self):
        for name in ("slurm_submit", "gnu_parallel.sh"):
            self.assertIn("usage: " + name, self.script(name, SOURCE, self.out, "zentorch", code=2).stderr)
        self.assertEqual(list(self.jobs.iterdir()), [])

    @unittest.skipIf(shutil.which("parallel") is None, "GNU parallel is not installed")
    def test_gnu_parallel(self):
        self.script("gnu_parallel.sh", SOURCE, self.out, "vllm-cpu", PARTS, "--scales", "exact")
        self.assert_merged("--scales", "exact")

    @unittest.skipIf(shutil.which("parallel") is None, "GNU parallel is not installed")
    def test_gnu_parallel_does_not_merge_after_a_failure(self):
        self.block_part(2)
        self.script("gnu_parallel.sh", SOURCE, self.out, "vllm-cpu", PARTS, code=1)
        self.assertFalse(self.out.exists())
        log = (self.out.parent / "out.parts.log").read_text().splitlines()
        self.assertEqual(len(log), 1 + PARTS)
        shutil.rmtree(self.part(2))
        self.script("gnu_parallel.sh", SOURCE, self.out, "vllm-cpu", PARTS)
        self.assert_merged()


@unittest.skipIf(importlib.util.find_spec("fsspec") is None, "fsspec is not installed")
class Stores(ScriptsTest):
    """The same with addresses: a folder stands for the store."""

    def setUp(self):
        super().setUp()
        (self.bin / "prepack-remote").write_text(
            f'#!/bin/sh\nexec env PREPACK_TOOL={TOOL} {sys.executable} -m prepack.remote.command "$@"\n')
        (self.bin / "prepack-remote").chmod(0o755)
        self.store = self.scratch / "store"
        shutil.copytree(SOURCE, self.store / "model")
        self.out = self.store / "out"
        self.jobs_disk = self.scratch / "disk"
        self.args = (f"file://{self.store}/model", f"file://{self.out}", "vllm-cpu", PARTS, "--scratch", self.jobs_disk)

    def env(self):
        paths = f"{ROOT / 'integrations' / 'python' / 'src'}:{os.environ.get('PYTHONPATH', '')}"
        return {**super().env(), "PYTHONPATH": paths, "PREPACK_REMOTE_CACHE": str(self.scratch / "cache")}

    def assert_stored(self):
        self.assertEqual(harness.hashes(self.out), harness.hashes(self.convert(SOURCE, "vllm-cpu", name="whole")))
        self.run_ok("verify", self.out, "--source", SOURCE)
        self.assertEqual(sorted(os.listdir(self.store)), ["model", "out", "out.verify"])
        self.assertEqual(os.listdir(self.jobs_disk), [])

    def test_slurm(self):
        self.script("slurm_submit", *self.args)
        self.assertEqual([job.name for job in self.jobs.glob("*.failed")], [], (self.jobs / "log").read_text())
        self.assert_stored()
        self.assertIn("\npassed\n", (self.jobs / "log").read_text())

    @unittest.skipIf(shutil.which("parallel") is None, "GNU parallel is not installed")
    def test_gnu_parallel(self):
        self.script("gnu_parallel.sh", *self.args)
        self.assert_stored()
        self.assertFalse((self.scratch / "out.parts.log").exists())

    @unittest.skipIf(yaml is None, "PyYAML is not installed")
    def test_kubernetes(self):
        job, container = read_job("kubernetes-store.yaml")
        pod = job["spec"]["template"]["spec"]
        given = {e["name"]: e["value"] for e in container["env"]}
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        self.assertEqual((mount["name"], mount["mountPath"]), (volume["name"], given["SCRATCH"]))
        self.assertEqual(volume["emptyDir"]["sizeLimit"], container["resources"]["limits"]["ephemeral-storage"])
        shared, of_shared = read_job("kubernetes-job.yaml")
        for spec in (job["spec"], shared["spec"]):
            del spec["template"]
        self.assertEqual(job, shared)
        self.assertEqual(container["image"], of_shared["image"])
        for index in (*range(PARTS), *range(PARTS)):
            again = self.part(index + 1).exists()
            done = self.run_in(container["command"] + container["args"], index)
            self.assertEqual("is complete already" in done, again)
            self.assertEqual(sorted(os.listdir(self.part(index + 1)))[0], ".prepack-source.json")
        self.kubernetes_after_the_parts(given)
        self.assert_stored()

    def run_in(self, words, index):
        """What a container prints, which gets the addresses of this store."""
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd="/",
            env={**self.env(), "JOB_COMPLETION_INDEX": str(index), "SOURCE": self.args[0], "OUT": self.args[1],
                 "TARGET": "vllm-cpu", "PARTS": str(PARTS), "SCRATCH": str(self.jobs_disk)})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def kubernetes_after_the_parts(self, given):
        """The other three jobs, with the addresses of the first."""
        source, out = given["SOURCE"], given["OUT"]
        here = {source: self.args[0], out: self.args[1]}
        secret = read_job("kubernetes-store.yaml")[1]["envFrom"]
        log = ""
        for name in ("merge", "verify", "verdict"):
            job, container = read_job(f"kubernetes-store-{name}.yaml")
            shared, of_shared = read_job(f"kubernetes-{name}.yaml")
            self.assertEqual((container["image"], container["envFrom"]), (of_shared["image"], secret))
            for spec in (job["spec"], shared["spec"]):
                del spec["template"]
            self.assertEqual(job, shared)
            env = {e["name"]: e["value"] for e in container.get("env", [])}
            self.assertLessEqual(env.items(), given.items())
            words = container["command"] + container.get("args", [])
            for place in sorted(here, key=len, reverse=True):
                words = [word.replace(place, here[place]) for word in words]
            for index in range(PARTS if name == "verify" else 1):
                log += self.run_in(words, index)
        self.assertIn("\npassed\n", log)
        self.assertEqual(sorted(os.listdir(self.store / "out.verify")), ["0.json", "1.json", "2.json"])


@unittest.skipIf(yaml is None, "PyYAML is not installed")
class Kubernetes(PathTest):
    def run_container(self, words, **env):
        result = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd="/", env={**self.env(), **env}
        )
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_fields_belong_together(self):
        job, container = read_job("kubernetes-job.yaml")
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        env = {e["name"]: e["value"] for e in container["env"]}
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(env["PARTS"], str(spec["completions"]))
        self.assertEqual(spec["parallelism"], spec["completions"])
        # Both of these are allowed with restartPolicy: Never only.
        self.assertEqual(spec["backoffLimitPerIndex"], 3)
        ignore, fail = spec["podFailurePolicy"]["rules"]
        self.assertEqual(pod["restartPolicy"], "Never")
        self.assertEqual((ignore["action"], fail["action"]), ("Ignore", "FailJob"))
        self.assertEqual(ignore["onPodConditions"], [{"type": "DisruptionTarget"}])
        self.assertEqual(fail["onExitCodes"]["containerName"], container["name"])
        self.assertEqual(fail["onExitCodes"]["values"], [3, 5])
        self.assertIn(f"--jobs {container['resources']['limits']['cpu']}", container["args"][0])
        merge_job, merge = read_job("kubernetes-merge.yaml")
        self.assertEqual(merge["command"], ["prepack", "merge", env["OUT"]])
        self.assertEqual(merge["image"], container["image"])
        self.assertEqual(merge["volumeMounts"], container["volumeMounts"])
        self.assertEqual(merge_job["spec"]["template"]["spec"]["volumes"], pod["volumes"])
        verify_job, verify = read_job("kubernetes-verify.yaml")
        self.assertEqual({e["name"]: e["value"] for e in verify["env"]}, {k: env[k] for k in ("SOURCE", "OUT", "PARTS")})
        for field in ("completionMode", "completions", "parallelism", "backoffLimitPerIndex"):
            self.assertEqual(verify_job["spec"][field], spec[field])
        self.assertEqual(verify_job["spec"]["podFailurePolicy"]["rules"], [ignore])
        self.assertIn(f"--jobs {verify['resources']['limits']['cpu']}", verify["args"][0])
        verdict_job, verdict = read_job("kubernetes-verdict.yaml")
        self.assertEqual(verdict["command"], ["prepack", "verify", env["OUT"]])
        self.assertEqual(verdict["args"], ["--source=" + env["SOURCE"], "--merge=" + env["OUT"] + ".verify"])
        for job, of_job in ((verify_job, verify), (verdict_job, verdict)):
            self.assertEqual(of_job["image"], container["image"])
            self.assertEqual(of_job["volumeMounts"], container["volumeMounts"])
            self.assertEqual(job["spec"]["template"]["spec"]["volumes"], pod["volumes"])
            self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        self.assertEqual(mount["name"], volume["name"])
        for path in (env["SOURCE"], env["OUT"]):
            self.assertTrue(path.startswith(mount["mountPath"] + "/"))

    def test_commands_of_the_containers(self):
        _, container = read_job("kubernetes-job.yaml")
        for index in range(PARTS):
            self.assertFalse(self.part(index + 1).exists())
            self.run_container(
                container["command"] + container["args"], JOB_COMPLETION_INDEX=str(index),
                SOURCE=str(SOURCE), OUT=str(self.out), TARGET="vllm-cpu", PARTS=str(PARTS),
            )
            self.assertTrue(self.part(index + 1).is_dir())
        _, merge = read_job("kubernetes-merge.yaml")
        self.run_container([*merge["command"][:-1], self.out])
        self.assert_merged()
        _, verify = read_job("kubernetes-verify.yaml")
        for index in range(PARTS):
            self.run_container(
                verify["command"] + verify["args"], JOB_COMPLETION_INDEX=str(index),
                SOURCE=str(SOURCE), OUT=str(self.out), PARTS=str(PARTS),
            )
        _, verdict = read_job("kubernetes-verdict.yaml")
        reports = f"{self.out}.verify"
        self.run_container([*verdict["command"][:-1], self.out, f"--source={SOURCE}", f"--merge={reports}"])
        self.assertEqual(sorted(os.listdir(reports)), ["0.json", "1.json", "2.json"])


if __name__ == "__main__":
    unittest.main()
