"""What the tests of documents share: finding the examples in Markdown and the calls in them."""

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("docs", "examples", "integrations", "fixtures")  # of the repository, that have documents


def documents():
    """Every Markdown file of the repository."""
    return sorted([*ROOT.glob("*.md"), *(p for part in PARTS for p in (ROOT / part).rglob("*.md"))])


def blocks(docs, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", docs, re.MULTILINE | re.DOTALL)


def texts(node):
    """Every string in a YAML document."""
    if isinstance(node, dict):
        return [text for value in node.values() for text in texts(value)]
    if isinstance(node, list):
        return [text for value in node for text in texts(value)]
    return [node] if isinstance(node, str) else []


def commands(text):
    """(subcommand, options) of every call of prepack in shell text."""
    joined = text.replace("\\\n", " ")
    calls = re.findall(r"\bprepack ([a-z]+) ([^\n;]*)", joined)
    return [(name, re.findall(r"--[a-z-]+", rest)) for name, rest in calls]


@dataclasses.dataclass
class Block:
    """Code in Markdown: indented by four spaces (language ""), or fenced."""

    language: str
    first: int  # line, counted from 0, of lines[0]
    lines: list  # without the indentation


def code_blocks(text):
    """All code of a document, in its order."""
    found, open_block, fenced, previous = [], None, False, ""
    for number, line in enumerate(text.split("\n")):
        fence = re.match(r"```(\w*)$", line)
        if fenced:
            if fence:
                fenced, open_block = False, None
            else:
                open_block.lines.append(line)
        elif fence:
            fenced, open_block = True, Block(fence[1], number + 1, [])
            found.append(open_block)
        elif open_block is not None and (line.startswith("    ") or not line):
            open_block.lines.append(line[4:])
        elif line.startswith("    ") and not previous:
            open_block = Block("", number, [line[4:]])
            found.append(open_block)
        else:
            open_block = None
        previous = line
    for block in found:
        while not block.language and block.lines and not block.lines[-1]:
            block.lines.pop()
    return found


@dataclasses.dataclass
class Command:
    """A line of a shell in a document. With a `$` in front, what it prints is shown."""

    text: str
    line: int  # counted from 0
    output: list = None  # lines; none: not shown
    shown: tuple = None  # the first line of the output and the one after it


def session(block):
    """The commands of a block whose commands have a `$` in front."""
    found = []
    for number, line in enumerate(block.lines, block.first):
        if line.startswith("$ "):
            found.append(Command(line[2:], number, [], (number + 1, number + 1)))
        elif not found:
            raise ValueError(f"line {number + 1}: output before the first command")
        elif found[-1].text.endswith("\\") and not found[-1].output:
            found[-1].text += "\n" + line
            found[-1].shown = (number + 1, number + 1)
        else:
            found[-1].output.append(line)
    for command in found:
        while command.output and not command.output[-1]:
            command.output.pop()
        command.shown = (command.shown[0], command.shown[0] + len(command.output))
    return found


def command_list(block):
    """The commands of a block that shows no output."""
    found = []
    for number, line in enumerate(block.lines, block.first):
        if found and found[-1].text.endswith("\\"):
            found[-1].text += "\n" + line
        elif line.strip() and not line.startswith("#"):
            found.append(Command(line, number))
    return found
