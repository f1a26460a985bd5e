"""prepack-remote: the commands that need headers only, of models that are somewhere else."""

from __future__ import annotations

import argparse
import os
import sys
from typing import List, Optional

from prepack.errors import Error, UsageError
from prepack.remote import jobs
from prepack.remote.files import get
from prepack.remote.headers import CONNECTIONS, RemoteModel, headers
from prepack.remote.store import put
from prepack.tool import tool_path

_COMMANDS = ("plan", "inspect", "check", "diff", "doctor")
# From one store into another, in parts on many machines.
_JOBS = {"convert": jobs.convert, "merge": jobs.merge, "verify": jobs.verify}

_DESCRIPTION = """\
Asks prepack about models that are somewhere else, from the headers of their files: a few MB.

  prepack-remote plan hf://ORG/NAME@REVISION --target vllm-cpu
  prepack-remote check --headers s3://BUCKET/MODEL
  prepack-remote diff --headers https://HOST/A hf://ORG/B
  prepack-remote inspect https://HOST/MODEL-Q4_K_M.gguf
  prepack-remote headers hf://ORG/NAME --into FOLDER --side-files
  prepack-remote headers hf://ORG/NAME --into FOLDER --side-files --plan -t gguf --llama-cpp DIR
  prepack-remote get hf://ORG/NAME/model-00001-of-00096.safetensors PATH

  prepack-remote convert hf://ORG/NAME -o s3://BUCKET/PACKED -t vllm-cpu --part 3/32 --scratch FOLDER
  prepack-remote merge s3://BUCKET/PACKED
  prepack-remote verify s3://BUCKET/PACKED --source hf://ORG/NAME --part 3/32 --report s3://BUCKET/REPORTS/3.json
  prepack-remote verify s3://BUCKET/PACKED --source hf://ORG/NAME --merge s3://BUCKET/REPORTS
"""

_NOTES = f"""\
{', '.join(_COMMANDS)}: the commands of prepack, with all their options. Every argument with :// is the
address of a folder with a model, or of a .gguf or .safetensors file. What would read weights is
refused. convert, merge and verify take --scratch FOLDER for what is on this disk meanwhile. Headers are kept in PREPACK_REMOTE_CACHE (default: ~/.cache/prepack/remote) and fetched again
when a file has changed. hf:// asks HF_ENDPOINT, s3:// what AWS_ENDPOINT_URL says.
Exit codes are those of prepack.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prepack-remote", description=_DESCRIPTION, epilog=_NOTES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--connections", type=int, default=CONNECTIONS, metavar="N",
                        help=f"requests at the same time (default: {CONNECTIONS})")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in (*_COMMANDS, *_JOBS):
        passed = commands.add_parser(name, add_help=False, prefix_chars="\0", help=f"as `prepack {name}`")
        passed.add_argument("arguments", nargs=argparse.REMAINDER)
    fetch = commands.add_parser("headers", help="fetch headers and print the folder that has them")
    fetch.add_argument("url", metavar="URL")
    fetch.add_argument("--into", metavar="FOLDER", help="a new folder, instead of the cache")
    fetch.add_argument("--side-files", action="store_true",
                       help="also the tokenizer and what else `prepack convert` copies")
    fetch.add_argument("--plan", nargs=argparse.REMAINDER, default=(), metavar="OPTION",
                       help="also what `prepack plan` with these options reads, such as the norms that -t gguf needs")
    whole = commands.add_parser("get", help="download one file, for `prepack convert --fetch`")
    whole.add_argument("url", metavar="URL")
    whole.add_argument("path", metavar="PATH")
    upload = commands.add_parser("put", help="upload one file, for `prepack convert --done`")
    upload.add_argument("path", metavar="PATH")
    upload.add_argument("url", metavar="URL")
    return parser


def _run(options: argparse.Namespace) -> int:
    progress = True if sys.stderr.isatty() and not options.quiet else None
    if options.command == "get":
        get(options.url, options.path, connections=options.connections)
        return 0
    if options.command == "put":
        put(options.path, options.url)
        return 0
    if options.command in _JOBS:
        return _JOBS[options.command](options.arguments, options.connections)
    if options.command == "headers":
        print(headers(options.url, options.into, side_files=options.side_files, plan=options.plan,
                      connections=options.connections, progress=progress))
        return 0
    arguments: List[str] = []
    models: List[RemoteModel] = []
    for argument in options.arguments:
        if "://" in argument and not argument.startswith("-"):
            models.append(RemoteModel(argument, None, False, options.connections, progress))
            argument = str(models[-1].path)
        arguments.append(argument)
    for model in models:
        model.fetch_wanted([options.command, *arguments])
    if arguments == options.arguments and not {"-h", "--help"}.intersection(arguments):
        raise UsageError("no argument is an address", where=f"prepack-remote {options.command}",
                         expected="hf://…, s3://…, https://…", hint="prepack itself reads folders")
    sys.stdout.flush()
    tool = str(tool_path())
    os.execv(tool, [tool, options.command, *arguments])


def main(arguments: Optional[List[str]] = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: stopped on request", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
