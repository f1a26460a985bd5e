"""The Debian packages: cpack makes them, they say what they need, and what is in them runs from where it
is unpacked."""

import gzip
import re
import shutil
import stat
import unittest

import installed
from installed import BUILD, VERSION


def field(info, name):
    found = re.search(rf"^ {name}: (.*)$", info, re.MULTILINE)
    return found and found.group(1)


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "dpkg-dev is not installed")
class Deb(installed.InstalledTest):
    def setUp(self):
        super().setUp()
        self.architecture = self.run_command("dpkg", "--print-architecture").strip()

    def make(self, folder, **env):
        self.run_command(
            "cpack", "--config", BUILD / "CPackConfig.cmake", "-G", "DEB", "-B", folder, cwd=self.scratch, env=env,
        )

    def package(self, name):
        return self.scratch / f"{name}_{VERSION}_{self.architecture}.deb"

    def unpack(self, name):
        folder = self.scratch / name
        self.run_command("dpkg-deb", "-x", self.package(name), folder)
        return folder

    def test_packages(self):
        self.make(self.scratch, SOURCE_DATE_EPOCH="1700000000")
        made = sorted(path.name for path in self.scratch.glob("*.deb"))
        self.assertEqual(made, [self.package("libprepack-dev").name, self.package("prepack").name])
        self.check_program()
        self.check_library()
        self.check_policy()
        # Every run makes the same bytes.
        again = self.scratch / "again"
        self.make(again, SOURCE_DATE_EPOCH="1700000000")
        for name in made:
            self.assertEqual((again / name).read_bytes(), (self.scratch / name).read_bytes(), name)

    def check_policy(self):
        """What Debian's own judge says: nothing, but for what the overrides give a reason for."""
        if not shutil.which("lintian"):
            self.skipTest("lintian is not installed")
        said = self.run_command(
            "lintian", "--fail-on", "none", "--allow-root", *self.scratch.glob("*.deb"),
        )
        self.assertEqual(said, "")

    def check_program(self):
        info = self.run_command("dpkg-deb", "--info", self.package("prepack"))
        self.assertEqual(field(info, "Package"), "prepack")
        self.assertEqual(field(info, "Version"), VERSION)
        self.assertEqual(field(info, "Maintainer"), "prepack developers <prepack@packages.invalid>")
        self.assertEqual(
            field(info, "Description"), "repack quantized LLM checkpoints for CPU kernels"
        )
        depends = field(info, "Depends")
        for library in ("libc6", "libfmt", "libpcre2-8-0", "libstdc++6", "libxxhash0"):
            self.assertIn(library, depends)
        self.assertNotIn("dnnl", depends)
        root = self.unpack("prepack")
        self.check_content(root)
        self.check_tool(root / "usr")
        program = self.run_command("readelf", "-S", root / "usr" / "bin" / "prepack")
        self.assertNotIn(".symtab", program)
        for page in ("prepack", "prepack-convert"):
            text = gzip.decompress((root / f"usr/share/man/man1/{page}.1.gz").read_bytes())
            self.assertIn(b".SH NAME", text)
        self.assertFalse(list(root.rglob("*.1")))
        # What only the building machine has.
        self.assertFalse([path for path in root.rglob("onednn")])

    def check_library(self):
        info = self.run_command("dpkg-deb", "--info", self.package("libprepack-dev"))
        for library in ("nlohmann-json3-dev", "libfmt-dev", "libxxhash-dev", "libpcre2-dev"):
            self.assertIn(library, field(info, "Depends"))
        root = self.unpack("libprepack-dev")
        self.check_content(root)
        self.assertEqual(len(list(root.rglob("libprepack.a"))), 1)
        self.assertEqual(len(list(root.rglob("prepackConfig.cmake"))), 1)

    def check_content(self, root):
        """Files that belong to root and are read by all, beneath /usr, with their licence."""
        self.check_no_paths(root)
        self.assertEqual([path.name for path in root.iterdir()], ["usr"])
        name = root.name
        self.assertIn("common-licenses/Apache-2.0", (root / f"usr/share/doc/{name}/copyright").read_text())
        changelog = gzip.decompress((root / f"usr/share/doc/{name}/changelog.gz").read_bytes()).decode()
        self.assertRegex(changelog, rf"^prepack \({VERSION}\) unstable; urgency=medium\n")
        listed = self.run_command("dpkg-deb", "-c", self.package(name)).splitlines()
        self.assertEqual([line for line in listed if " root/root " not in line], [])
        for path in root.rglob("*"):
            mode = stat.S_IMODE(path.lstat().st_mode)
            run = path.is_dir() or path.parent.name == "bin"
            if path.suffix != ".so":
                self.assertEqual(mode, 0o755 if run else 0o644, path)


if __name__ == "__main__":
    unittest.main()
