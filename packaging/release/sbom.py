#!/usr/bin/env python3
"""Writes the SBOM of a release: what is in its files, as a CycloneDX 1.5 document.

    sbom.py --version V --epoch SECONDS --sources FOLDER --zig V --output FILE ARTEFACT...

FOLDER holds the unpacked sources of what the portable builds link in (packaging/portable/build). The
same input gives the same bytes.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import uuid

# Debian source package → (name, licence): compiled and linked into the program.
COMPILED = {
    "fmtlib": ("fmt", "MIT"), "mimalloc": ("mimalloc", "MIT"), "onednn": ("oneDNN", "Apache-2.0"),
    "pcre2": ("PCRE2", "BSD-3-Clause"), "xxhash": ("xxHash", "BSD-2-Clause"),
}
# Debian package → (name, licence): headers only.
HEADERS = {
    "nlohmann-json3-dev": ("nlohmann-json", "MIT"),
    "libeigen3-dev": ("Eigen", "MPL-2.0"),
    "libxsimd-dev": ("xsimd", "BSD-3-Clause"),
    "libcli11-dev": ("CLI11", "BSD-3-Clause"),
}
# What zig brings and links in.
RUNTIMES = (
    ("libc++", "Apache-2.0 WITH LLVM-exception"), ("libc++abi", "Apache-2.0 WITH LLVM-exception"),
    ("libunwind", "Apache-2.0 WITH LLVM-exception"), ("musl", "MIT"),
)


def licence(expression):
    if " " in expression:
        return [{"expression": expression}]
    return [{"license": {"id": expression}}]


def component(name, version, expression, purl, **more):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "licenses": licence(expression), **more}


def source(sources, package):
    """The version, with Debian's revision, and the hash of the file that has the hashes of all others."""
    (description,) = sources.glob(f"{package}_*.dsc")
    data = description.read_bytes()
    version = re.search(r"^Version: (\S+)$", data.decode(), re.MULTILINE)[1]
    return version, [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]


def installed_version(package):
    return subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def parts(options):
    for package, (name, expression) in COMPILED.items():
        version, hashes = source(options.sources, package)
        yield component(name, version, expression, f"pkg:deb/debian/{package}@{version}?arch=source",
                        description="linked into the program", hashes=hashes)
    for package, (name, expression) in HEADERS.items():
        version = installed_version(package)
        yield component(name, version, expression, f"pkg:deb/debian/{package}@{version}",
                        description="headers only")
    for name, expression in RUNTIMES:
        yield component(name, f"zig {options.zig}", expression,
                        f"pkg:pypi/ziglang@{options.zig}#{name.replace('+', '%2B')}",
                        description="linked into the program")


def file_component(path):
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return {"type": "file", "bom-ref": f"file:{path.name}", "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": digest}]}


def document(options):
    prepack = f"pkg:pypi/prepack-llm@{options.version}"
    files = [file_component(path) for path in sorted(options.artefacts, key=lambda path: path.name)]
    libraries = list(parts(options))
    content = json.dumps([files, libraries], sort_keys=True)
    time = datetime.datetime.fromtimestamp(options.epoch, datetime.timezone.utc)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": prepack, "name": "prepack", "purl": prepack,
                          "version": options.version, "licenses": licence("Apache-2.0")},
        },
        "components": files + libraries,
        "dependencies": [{"ref": prepack, "dependsOn": [library["bom-ref"] for library in libraries]}],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for option in ("--version", "--zig"):
        parser.add_argument(option, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("artefacts", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    options.output.write_text(json.dumps(document(options), indent=2) + "\n")


if __name__ == "__main__":
    main()
