"""Asks the process behind a socket to carry a file: `ask.py SOCKET VERB NAME PATH`. Run as a file, for it must
start fast: it imports nothing of this package."""

import json
import socket
import sys


def main() -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(json.dumps(sys.argv[2:]).encode() + b"\n")
        answer = connection.makefile("rb").read()
    if not answer:
        print("error: the process that carries files has ended", file=sys.stderr)
        return 4
    code, text = json.loads(answer)
    if text:
        print(f"error: {text}", file=sys.stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
