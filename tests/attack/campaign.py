"""Attacks prepack with mutants of tiny models, for as long as is asked.

    PREPACK_TOOL=build/release/bin/prepack python tests/attack/campaign.py [--seconds N] [--rounds N] [--seed N]
        [--keep FOLDER]

Each round has a seed of its own, which repeats it (`--seed N --rounds 1`). A source is changed and given to all commands;
or a packed folder is changed, mostly with all its hashes made to fit again, and verified; or one of two parts is changed
and merged with the other. What is held against the tool is written by hand (decode.py, unpack.py) and shares no code with it:

- what is converted is what the mutant means; what is no model is not converted
- what `verify` passes is what the source means, to those who load it, and the project's own readers take it
- no crash, no hang, no stray line, no wrong exit code; sources stay as they are, and nothing is left after an error
"""

import argparse
import collections
import json
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

import decode
import mutate
import raw
import readers
import seeds
import unpack
from tool import run, snapshot

TARGETS = ("vllm-cpu", "vllm-arm", "zentorch", "onednn")
OPTIONS = ([], ["--fuse"], ["--fallback", "dequantize"], ["--scheme", "w4a8"], ["--scales", "exact"], ["--jobs", "1"])
# What is a matter of the options that were drawn, or of a manifest that was taken away.
USAGE = ("matches no module of the checkpoint", "this is not a packed folder")


class Pool:
    """Sound models and their packed folders, made once."""

    def __init__(self, place, tool=None):
        self.place = place
        self.tool = tool
        self.made = {}

    def source(self, form, twin, layers, shards, bias):
        key = f"{form}-{'ab'[twin]}-{layers}-{shards}-{int(bias)}"
        if key not in self.made:
            seeds.write_seed(self.place / key, form, 100 + twin, layers, shards, bias)
            self.made[key] = (self.place / key, decode.decode(self.place / key))
        return self.made[key]

    def packed(self, source, target, options):
        """A packed folder of a sound source; None where there is no layout for it."""
        key = f"{source.name}-{target}-{'-'.join(options)}"
        if key not in self.made:
            out = self.place / key
            ran = run("convert", source, "-o", out, "-t", target, "--no-flush", *options, tool=self.tool)
            self.made[key] = out if ran.code == 0 else None
        return self.made[key]

    def parts(self, source, target, options):
        """A folder of the two parts of a conversion."""
        key = f"parts-{source.name}-{target}-{'-'.join(options)}"
        if key not in self.made:
            place = self.place / key
            place.mkdir()
            words = ("convert", source, "-o", place / "out", "-t", target, "--no-flush", *options)
            codes = [run(*words, "--part", f"{i}/2", tool=self.tool).code for i in (1, 2)]
            self.made[key] = place if codes == [0, 0] else None
        return self.made[key]


class Round:
    def __init__(self, seed, pool, scratch, tool=None):
        self.random = random.Random(seed)
        self.pool = pool
        self.scratch = scratch
        self.tool = tool
        self.wrong = []  # what must not be
        self.odd = []  # what somebody should look at
        self.done = []  # the changes
        self.verdicts = []

    def call(self, *words):
        ran = run(*words, tool=self.tool)
        self.wrong += ran.wrong
        self.verdicts.append(f"{ran.words[0]} {ran.code}")
        if ran.code in (2, 4) and not any(text in ran.err for text in USAGE):
            self.odd.append(f"{ran.words[0]} {ran.code}: {ran.err.strip()[:300]}")
        return ran

    def choose(self):
        form = self.random.choice(sorted(seeds.FORMS))
        shape = (self.random.choice((1, 2)), self.random.choice((1, 1, 3)), self.random.random() < 0.3)
        self.base, self.model = self.pool.source(form, 0, *shape)
        self.twin, _ = self.pool.source(form, 1, *shape)
        self.target = self.random.choice(TARGETS)
        self.options = self.random.choice(OPTIONS)

    def go(self):
        self.choose()
        self.random.choices((self.attack_source, self.attack_packed, self.attack_parts), (10, 9, 1))[0]()

    # --- sources -----------------------------------------------------------------------------------------------

    def attack_source(self):
        mutant = self.scratch / "mutant"
        shutil.copytree(self.base, mutant)
        self.done = mutate.mutate(mutant, self.random, [self.twin], mutate.SOURCE, self.random.choice((1, 1, 2, 3)))
        before = snapshot(mutant)
        meant, why = self.meaning(mutant)
        check = self.call("check", mutant, *self.json())
        options = [] if "--jobs" in self.options else self.options
        plan = self.call("plan", mutant, "-t", self.target, *options, *self.json())
        self.call("inspect", mutant, *self.json())
        self.call("diff", self.base, mutant, *self.json())
        convert = self.convert(mutant)
        if snapshot(mutant) != before:
            self.wrong.append("the source was changed")
        if check.code == 0 and meant == "bad":
            self.wrong.append(f"check passes what is no model: {why}")
        if check.code == 0 and convert.code == 3:
            self.odd.append(f"check passes what convert refuses: {convert.err.strip()[:300]}")
        if plan.code == 0 and convert.code == 5:
            self.odd.append(f"plan 0, convert 5: {convert.err.strip()[:300]}")
        if convert.code == 0:
            self.judge_output(mutant, meant, why, check)

    def meaning(self, folder):
        """("model", the decoded one), ("bad", why) or ("unclear", why)."""
        try:
            return "model", decode.decode(folder)
        except decode.Bad as error:
            return "bad", str(error)
        except decode.Unclear as error:
            return "unclear", str(error)
        except OSError as error:
            return "bad", str(error)

    def json(self):
        return ["--json"] if self.random.random() < 0.5 else []

    def convert(self, mutant):
        parent = self.scratch / "parent"
        parent.mkdir()
        out = parent / "out"
        convert = self.call("convert", mutant, "-o", out, "-t", self.target, "--no-flush", *self.options, *self.json())
        left = sorted(path.name for path in parent.iterdir())
        if left != (["out"] if convert.code == 0 else []):
            self.wrong.append(f"convert {convert.code} left {left}")
        return convert

    def judge_output(self, mutant, meant, why, check):
        out = self.scratch / "parent" / "out"
        if check.code in (3, 5):
            self.odd.append(f"convert takes what check refuses with {check.code}: {check.out.strip()[-300:]}")
        if meant == "bad":
            self.wrong.append(f"convert takes what is no model: {why}")
        if meant == "model":
            self.compare(out, why, "converted")
        verify = self.call("verify", out, "--source", mutant, *self.engine())
        if verify.code != 0:
            # Scales without any sense overflow in every product, which check warns of.
            senseless = "weights-size" in check.out or "scale-outside" in check.out
            exact = all(f"{level}   passed" in verify.out for level in ("integrity", "exactness"))
            where = self.odd if senseless and exact else self.wrong
            where.append(f"verify {verify.code} of what was just converted: {(verify.out + verify.err)[-400:]}")

    def engine(self):
        return ["--engine", "reference"] if self.random.random() < 0.8 else []

    def compare(self, out, model, what):
        try:
            found = unpack.differences(out, model)
        except decode.Unclear:
            self.verdicts.append("not decoded")
            return
        except (decode.Bad, KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
            found = [f"cannot be loaded: {type(error).__name__} {error}"]
        self.verdicts.append("compared")
        self.wrong += [f"{what}: {one}" for one in found[:3]]

    # --- packed folders ----------------------------------------------------------------------------------------

    def attack_packed(self):
        packed = self.pool.packed(self.base, self.target, self.options)
        twin = self.pool.packed(self.twin, self.target, self.options)
        other = self.pool.packed(self.base, self.random.choice(TARGETS), self.random.choice(OPTIONS))
        if packed is None or twin is None:
            return
        mutant = self.scratch / "packed"
        shutil.copytree(packed, mutant)
        givers = [one for one in (twin, other) if one is not None]
        count = self.random.choice((1, 1, 2, 3))
        self.done = mutate.mutate(mutant, self.random, givers, mutate.PACKED, count)
        if self.random.random() < 0.85:
            self.seal(mutant)
        verify = self.call("verify", mutant, "--source", self.base, *self.engine(), *self.json())
        self.call("inspect", mutant, *self.json())
        self.wrong += readers.failures(mutant)
        if verify.code == 0:
            self.compare(mutant, self.model, "verified")
            for name, opened in readers.READERS.items():
                if (why := opened(mutant)) is not None:
                    self.wrong.append(f"verified, but {name} refuses it: {why}")
            self.compare_files(mutant)
        if self.random.random() < 0.2:
            resumed = ["-t", self.target, "--resume", "--no-flush", *self.options]
            self.call("convert", self.base, "-o", mutant, *resumed)

    # --- parts -------------------------------------------------------------------------------------------------

    def attack_parts(self):
        """One of two parts is changed, or is that of another model; what is merged is not passed as another one."""
        own, foreign = (self.pool.parts(one, self.target, self.options) for one in (self.base, self.twin))
        if own is None or foreign is None:
            return
        parent = self.scratch / "parent"
        shutil.copytree(own, parent)
        part = self.random.choice(sorted(parent.iterdir()))
        if self.random.random() < 0.2:
            shutil.rmtree(part)
            shutil.copytree(foreign / part.name, part)
            self.done = [f"{part.name} of {foreign.name}"]
        else:
            self.done = mutate.mutate(part, self.random, [foreign / part.name], mutate.PART, self.random.choice((1, 2)))
            if self.random.random() < 0.8:
                self.seal_part(part)
        before = snapshot(parent)
        merge = self.call("merge", parent / "out", *self.json())
        if merge.code != 0:
            if snapshot(parent) != before:
                self.wrong.append("merge failed and changed the parts")
            return
        verify = self.call("verify", parent / "out", "--source", self.base, *self.engine(), *self.json())
        if verify.code == 0:
            self.compare(parent / "out", self.model, "merged")
            self.compare_files(parent / "out")

    def seal_part(self, part):
        """The manifest of the part; its record has no hash."""
        name = "prepack-part-manifest.json"
        try:
            raw.write_manifest(part, json.loads((part / name).read_text()), name)
            self.done.append(f"{name} sealed")
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass

    def seal(self, mutant):
        try:
            raw.seal(mutant, places=self.random.random() < 0.7)
            self.done.append("sealed")
        except (ValueError, TypeError, KeyError, OSError, AttributeError, RecursionError, OverflowError):
            pass  # there is no manifest left that hashes could be in

    def compare_files(self, mutant):
        """config.json and side files are those of the source."""
        try:
            configs = [json.loads((folder / "config.json").read_text()) for folder in (mutant, self.base)]
        except (OSError, ValueError) as error:
            self.wrong.append(f"verified: config.json: {error}")
            return
        source = configs[1].pop("quantization_config")
        own = configs[0].pop("quantization_config", None)
        if configs[0] != configs[1]:
            self.wrong.append("verified: config.json is not that of the source")
        fields = {"quant_method": "prepack", "format_version": 2, "target": self.target}
        if not isinstance(own, dict) or any(own.get(key) != value for key, value in fields.items()):
            self.wrong.append("verified: quantization_config is not what consumers look for")
        elif own.get("source") != source:
            self.wrong.append("verified: quantization_config.source is not that of the source")
        names = [{p.name for p in folder.iterdir() if not p.name.endswith(".safetensors")} for folder in (mutant, self.base)]
        more = names[0] - names[1] - {raw.MANIFEST, raw.INDEX}
        if more or names[1] - names[0] - {raw.INDEX}:
            self.wrong.append(f"verified: other files than the source: {sorted(more)}")
        if (mutant / "generation_config.json").read_bytes() != (self.base / "generation_config.json").read_bytes():
            self.wrong.append("verified: a side file is not that of the source")


def play(seed, pool, keep=None, tool=None):
    """One round: (wrong, odd, done, verdicts)."""
    with tempfile.TemporaryDirectory(prefix="attack-") as scratch:
        one = Round(seed, pool, pathlib.Path(scratch), tool)
        try:
            one.go()
        except Exception as error:  # noqa: BLE001  a mistake of the attacker must not end the campaign
            places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
            one.odd.append(f"the attacker failed: {type(error).__name__}: {error} at {places}")
        if one.wrong and keep is not None:
            shutil.copytree(scratch, keep / f"round-{seed}", symlinks=True, dirs_exist_ok=True)
            (keep / f"round-{seed}" / "base").write_text(f"{one.base}\n{one.done}\n{one.wrong}\n{one.target} {one.options}\n")
        return one


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each has the next one")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the mutants that must not be, and a log")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    counts, bad, start, rounds = collections.Counter(), 0, time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="attack-pool-") as place:
        pool = Pool(pathlib.Path(place))
        while rounds < options.rounds and time.monotonic() - start < options.seconds:
            seed = options.seed + rounds
            one = play(seed, pool, options.keep)
            rounds += 1
            counts.update(one.verdicts)
            bad += bool(one.wrong)
            for kind, texts in (("wrong", one.wrong), ("odd", one.odd)):
                for text in texts if kind == "wrong" or options.keep else ():
                    line = {"seed": seed, kind: text, "base": one.base.name, "done": one.done,
                            "target": one.target, "options": one.options}  # fmt: skip
                    report(line, options.keep, kind)
            if options.keep:
                state = {"rounds": rounds, "bad": bad, "seconds": time.monotonic() - start, "counts": counts}
                (options.keep / "state.json").write_text(json.dumps(state, indent=1))
    print(f"{rounds} rounds from seed {options.seed} in {time.monotonic() - start:.0f} s: {bad} with something wrong")
    for verdict, count in sorted(counts.items()):
        print(f"  {verdict}: {count}")
    return 1 if bad else 0


def report(line, keep, kind):
    text = json.dumps(line)
    if kind == "wrong":
        print(text, flush=True)
    if keep:
        with open(keep / f"{kind}.jsonl", "a", encoding="utf-8") as log:
            log.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
