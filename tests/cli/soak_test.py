"""Random checkpoints, the whole way to every target. tools/soak runs it with one seed after the other;
it needs generate_checkpoint, which is built with the benchmarks."""

import json
import random
import resource
import sys
import unittest

import harness
from harness import TARGETS


class RandomCheckpoint(harness.ToolTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(harness.SEED)

    def make_source(self, megabytes):
        source, self.shape = harness.random_checkpoint(
            self.scratch / "source", self.random, megabytes
        )
        print(f"seed {harness.SEED}: {self.shape}", file=sys.stderr)
        return source

    def test_every_target_is_verified_and_the_same_in_every_way_to_make_it(self):
        source = self.make_source(megabytes=8)
        before = harness.snapshot(source)
        for target in TARGETS:
            options = ["--fallback", "dequantize"]
            if self.random.random() < 0.5:
                options.append("--fuse")
            with self.subTest(shape=self.shape, target=target, options=options):
                out = self.convert(source, target, *options)
                report = self.run_ok("verify", out, "--source", source, "--json").stdout
                self.assertEqual(json.loads(report)["verdict"], "passed")
                self.compare_other_ways(source, target, options, out)
        self.assertEqual(harness.snapshot(source), before)

    def compare_other_ways(self, source, target, options, out):
        jobs = self.random.randint(2, 8)
        threads = self.convert(source, target, *options, "--jobs", jobs, name=f"{target}-jobs")
        self.assertEqual(harness.contents(threads), harness.contents(out))
        scalar = self.convert(
            source, target, *options, name=f"{target}-scalar", env={"PREPACK_ISA": "scalar"}
        )
        self.assertEqual(harness.contents(scalar), harness.contents(out))
        parts, count = self.scratch / f"{target}-parts", self.random.randint(2, 9)
        for index in range(1, count + 1):
            self.run_ok(
                "convert", source, "-o", parts, "-t", target, *options, "--part", f"{index}/{count}"
            )
        self.run_ok("merge", parts)
        self.assertEqual(harness.hashes(parts), harness.hashes(out))

    def test_memory_is_bounded(self):
        """Anonymous memory for writing: 64 MiB, and 8 MiB and a stack for each thread."""
        source = self.make_source(megabytes=200)
        threads, stack = self.random.randint(1, 8), 8 << 20
        most = (64 << 20) + threads * ((8 << 20) + stack)

        def limit():
            resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

        for target in TARGETS:
            with self.subTest(shape=self.shape, target=target, threads=threads):
                self.run_ok(
                    "convert", source, "-o", self.scratch / target, "-t", target, "-q",
                    "--fallback", "dequantize", "--jobs", threads, preexec_fn=limit,
                )


if __name__ == "__main__":
    unittest.main()
