"""No function that other files may share holds instructions that not every CPU has.

Called with the objects of the files for AVX2 and AVX-512, compiled without optimisation. Of weak
functions, such as templates and inline functions, the linker keeps one copy for the whole program. So
those with AVX code must have the instruction set in their names.
"""

import pathlib
import re
import subprocess
import sys
import unittest

# Names that only files for the instruction set use, by what is in the name of the object.
TAGS = {"avx512": re.compile(r"\b(avx512|EigenAvx512\b)"), "avx2": re.compile(r"\b(avx2?\b|EigenAvx2\b)")}
# Of functions in the output of objdump.
HEAD = re.compile(r"^[0-9a-f]+ <(.*)>:$")
AVX = re.compile(r"^\s+[0-9a-f]+:\s+v(?!er[rw])")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def weak_functions(path):
    lines = [line.split(maxsplit=2) for line in run("nm", "--defined-only", path).splitlines()]
    return {name for _, kind, name in lines if kind in "Ww"}


def functions_with_avx(path):
    found, name = set(), None
    for line in run("objdump", "--disassemble", "--no-show-raw-insn", path).splitlines():
        if head := HEAD.match(line):
            name = head[1]
        elif AVX.match(line):
            found.add(name)
    return found


class Symbols(unittest.TestCase):
    objects = []

    def test_shared_functions_run_everywhere(self):
        self.assertGreaterEqual(len(self.objects), 4)
        for path in self.objects:
            name = pathlib.Path(path).name
            tag = TAGS["avx512" if "avx512" in name else "avx2"]
            with self.subTest(object=name):
                avx = functions_with_avx(path)
                self.assertTrue(avx, "the file has no AVX code at all")
                shared = sorted(weak_functions(path) & avx)
                shared = run("c++filt", *shared).splitlines() if shared else []
                self.assertEqual([function for function in shared if not tag.search(function)], [])


if __name__ == "__main__":
    Symbols.objects = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
