"""What the tests of documents share: finding the examples in Markdown and the calls in them."""

import re


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
