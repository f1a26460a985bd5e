"""Our reading of Python's regular expressions against Python itself, on generated patterns.

A pattern that we take must compile in Python, and must match and be found in a text exactly if Python says
so. What we refuse as broken must not compile in Python, but for what stands in STRICTER; what we refuse
as not supported may be anything.

    regex_verdicts_test.py [--count N] [--seconds S] [--seed SEED]
"""

import json
import os
import re
import sys
import warnings

import verdicts

PROGRAM = os.environ["PREPACK_REGEX_VERDICTS"]

# Patterns that we call broken and Python compiles: a pattern of our message → why, as the document has it.
STRICTER = verdicts.Table({})
# Patterns that we take and Python does not compile: a pattern of its message → why.
LENIENT = verdicts.Table({
    r"look-behind requires fixed-width pattern": "a look-behind whose alternatives have different lengths",
})

# Python 3.11.2 finds `\S{2}(?<=[\d-][$]){,2}+(?-i:\A)` in "x1_", where nothing can match; 3.11.7 does not. Such
# patterns are asked of later versions only.
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]*\})\+")
HAS_POSSESSIVE_BUG = sys.version_info < (3, 11, 7)

ATOMS = ["a", "b", "model", "layers", "mlp", "_proj", "q", "1", "0", "\\.", ".", ".", "\\d", "\\w", "\\s", "\\D", "\\W", "\\S",
         "\\b", "\\B", "\\A", "\\Z", "^", "$", "[ab]", "[^.]", "[]a]", "[^]]", "[a-z0-9_]", "[\\w.]", "[\\d-]", "[.-]", "[a-]",
         "\\-", "\\_" , "\\/", " ", "-", "_", ":", "!", "=", "<", ">", ",", "#", "}", "{", "]", "\\{", "\\x61", "\\141", "\\0",
         "\\1", "\\2", "(?P=n)", "\\t", "\\n", "\\v", "\\f", "\\a", "\\e", "\\G", "\\R", "\\X", "\\h", "\\K", "\\Q", "\\E", "\\z",
         "\\g<n>", "\\g1", "\\k<n>", "\\p{L}", "\\N", "\\u0061", "\\U00000061", "\\c", "\\o{141}", "\\x{61}", "\\x6", "\\8", "\\10",
         "[[:alpha:]]", "[[a]", "[a&&b]", "[a--b]", "[a||b]", "[\\b]", "[z-a]", "[\\d-z]", "[^", "[", "(?#c)", "(?#", "\\",
         "[a\\]b]", "[\\141]", "[\\x61]", "[\\A]", "[\\Z]", "[\\B]", "[\\1]", "[^^]", "[$]", "[|]", "[\\v]", "[[.a.]]", "[[=a=]]"]
GROUPS = ["(", "(", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<n>", "(?P<m>", "(?>", "(?i:", "(?-i:", "(?s:", "(?x:",
          "(?i)", "(?s)(", "(?m)", "(?x)", "(?a:", "(?u)", "(?L)", "(?(1)", "(?(n)", "(?|", "(?<n>", "(?'n'", "(?&n)", "(?R)",
          "(?<=a|bb", "(?P>n)", "(?1)", "(*ACCEPT)", "(*F)", "(?^:", "(?im-s:", "(?-:", "(?i-:", "(?C)", "(?=+", "(?P=", "(?P", "(?-x)"]
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}", "{1,}", "{0}", "{,}", "{2,1}", "{a}", "{1,2}?", "{ 1}", "{1 ,2}",
           "*+", "++", "?+", "{2}+", "**", "{1,99999}", "{,2}?", "{,2}+", "{,x}", "{}", "{,", "{1"]
# None is empty, as no module's name is: Python before 3.14 finds no \\B there.
TEXTS = ["model.layers.0.mlp.q_proj", "model.layers.11.mlp.experts.3.up_proj", "lm_head", "a", "aa", "ab", "aab", "b", "abab",
         "a\n", "\n", "a\nb", "a b", "A", "a.b", "]", "-", "\x0b", "{", "a{,2}", "^", "\\", "0", "model\n", "é", "x1_", "aaaa",
         "}", "[", "&", "|", "a-b", "#", "\u0663", "\u00aa"]


def make_pattern(rng, depth=0):
    pieces = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        choice = rng.random()
        if choice < 0.2 and depth < 3:
            piece = rng.choice(GROUPS) + make_pattern(rng, depth + 1)
            if rng.random() < 0.95:
                piece += ")"
        else:
            # Those at the front, which are the usual ones, more often.
            piece = rng.choice(ATOMS[:40] if rng.random() < 0.7 else ATOMS)
        if rng.random() < 0.3:
            piece += rng.choice(REPEATS[:10] if rng.random() < 0.7 else REPEATS)
        pieces.append(piece)
        if rng.random() < 0.08:
            pieces.append("|")
    return "".join(pieces)


def make_question(rng):
    return make_pattern(rng), rng.choice(TEXTS)


def ours(questions):
    """Our verdicts: {"match": …, "search": …}, {"malformed": …} or {"unsupported": …}."""
    asked = "".join(json.dumps(question) + "\n" for question in questions)
    return [json.loads(line) for line in verdicts.ask(PROGRAM, asked.encode())]


def theirs(pattern, text):
    """({"match": …, "search": …}, None), or (None, message)."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return {"match": bool(compiled.match(text)), "search": bool(compiled.search(text))}, None


def compare(question, verdict):
    """What is wrong, or None."""
    if "unsupported" in verdict:
        return None
    if HAS_POSSESSIVE_BUG and POSSESSIVE_GROUP.search(question[0]):
        return None
    answer, message = theirs(*question)
    if "malformed" in verdict:
        if answer is None or STRICTER.allows(verdict["malformed"]):
            return None
        return f"broken to us, but not to Python: {verdict['malformed']}"
    if answer is None:
        return None if LENIENT.allows(message) else f"we take what Python does not: {message}"
    return None if verdict == answer else f"we say {verdict}, Python {answer}"


if __name__ == "__main__":
    if not (3, 11) <= sys.version_info < (3, 14):
        sys.exit(0)  # others have other patterns: no atomic groups before, \z since
    warnings.simplefilter("ignore")  # of sets that may mean something else one day
    verdicts.run(__doc__, 20_000, [STRICTER, LENIENT], make_question, ours, compare)
