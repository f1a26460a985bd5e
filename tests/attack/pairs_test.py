"""Folders made of two valid ones (pairs.py): `prepack verify` fails each that is not truly what it says.

    python tests/attack/pairs_test.py            # the seeds of every run
    python tests/attack/pairs_test.py --seconds 600 --seed 1000
"""

import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import unittest

import decode
import pairs
import seeds
from tool import run

TOOL = os.environ["PREPACK_TOOL"]
ROUNDS = 120
FORMS = ("ct-sym", "ct-asym", "ct-int8", "gptq-order", "awq", "ct-channel", "moe-sym", "moe-int8")
OPTIONS = ([], ["--fuse"], ["--scales", "exact"], ["--scheme", "w4a8"])
TARGETS = ("vllm-cpu", "vllm-arm", "zentorch")


class Pool:
    def __init__(self, place):
        self.place = place
        self.made = {}

    def source(self, form, bias, twin):
        key = f"{form}-{int(bias)}-{twin}"
        if key not in self.made:
            folder = seeds.write_seed(self.place / key, form, 100 + twin, bias=bias)
            self.made[key] = folder, decode.decode(folder)
        return self.made[key]

    def packed(self, source, target, options):
        key = f"{source.name}-{target}{''.join(options)}"
        if key not in self.made:
            words = ("convert", source, "-o", self.place / key, "-t", target, "--no-flush", "-q", *options)
            self.made[key] = self.place / key if run(*words, tool=TOOL).code == 0 else None
        return self.made[key]


def play(pool, seed, scratch):
    """What a folder says that is not so, although verify passes it; and its verdict."""
    choose = random.Random(seed)
    form, bias = choose.choice(FORMS), choose.random() < 0.4
    source, model = pool.source(form, bias, 0)
    twin, _ = pool.source(form, bias, 1)
    target, options = choose.choice(TARGETS), choose.choice(OPTIONS)
    sound = pool.packed(source, target, options)
    of_twin = choose.random() < 0.7
    giver = pool.packed(twin, target, options) if of_twin else pool.packed(source, target, choose.choice(OPTIONS))
    if sound is None or giver is None:
        return None
    path = scratch / "packed"
    shutil.copytree(sound, path)
    way = choose.choices((pairs.take, pairs.take_shard, pairs.exchange_shards), (8, 1, 1))[0]
    said = way(path, source, giver, choose)
    ran = run("verify", path, "--source", source, "--engine", "reference", tool=TOOL)
    wrong = pairs.lies(path, sound, model, of_twin) if ran.code == 0 else []
    return ran.code, wrong + ran.wrong, f"seed {seed}: {form}, {target} {options}, of {giver.name}: {said}"


class Pairs(unittest.TestCase):
    def test_folders_made_of_two_are_not_passed(self):
        with tempfile.TemporaryDirectory(prefix="prepack-pairs-") as place:
            pool = Pool(pathlib.Path(place))
            failed = passed = 0
            for seed in range(ROUNDS):
                with self.subTest(seed=seed), tempfile.TemporaryDirectory() as scratch:
                    result = play(pool, seed, pathlib.Path(scratch))
                    if result is None:
                        continue
                    code, wrong, said = result
                    self.assertEqual(wrong, [], said)
                    passed += code == 0
                    failed += code in (1, 3)
            self.assertGreater(failed, ROUNDS // 2)
            self.assertGreater(passed, 0)  # the truth is among them, so that passing is possible


def campaign(seconds, seed):
    start, rounds, counts, bad = time.monotonic(), 0, {}, 0
    with tempfile.TemporaryDirectory(prefix="prepack-pairs-") as place:
        pool = Pool(pathlib.Path(place))
        while time.monotonic() - start < seconds:
            with tempfile.TemporaryDirectory() as scratch:
                result = play(pool, seed + rounds, pathlib.Path(scratch))
            rounds += 1
            if result is None:
                continue
            code, wrong, said = result
            counts[code] = counts.get(code, 0) + 1
            if wrong:
                bad += 1
                print(said, wrong, flush=True)
    print(f"{rounds} folders in {time.monotonic() - start:.0f} s, exit codes {counts}, {bad} passed that lie")
    return 1 if bad else 0


if __name__ == "__main__":
    if "--seconds" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--seconds", type=float, required=True)
        parser.add_argument("--seed", type=int, default=1000)
        options = parser.parse_args()
        sys.exit(campaign(options.seconds, options.seed))
    unittest.main()
