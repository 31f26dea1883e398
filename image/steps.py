"""Prints the build stage of the Dockerfile as a shell script, for a machine without an engine.

    python image/steps.py Dockerfile PREFIX | sh -e

Everything the stage writes outside its working directory goes under PREFIX. The base image is not
there: the script runs with the Python of the machine, and with its gcc, which it does not install.
Only COPY, ENV, RUN and WORKDIR are known.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = re.compile(r"(?<![\w/.])/(?:opt|src|tmp)/?[\w./*-]*")
"""Absolute paths the stage writes to."""


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each instruction of the first stage: its word and the rest of its line, comments left out."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    stages = 0
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        stages += word == "FROM"
        if stages == 1 and word not in {"", "FROM", "ARG"}:
            yield word, rest.strip()


def script(dockerfile: str, prefix: str) -> Iterator[str]:
    """The lines of the script. Raises ValueError for an instruction it does not know."""

    def placed(text: str) -> str:
        return OURS.sub(lambda found: prefix + found[0], text)

    yield f"context=$PWD; mkdir -p {shlex.quote(prefix)}; cd {shlex.quote(prefix)}; mkdir opt tmp"
    for word, rest in instructions(dockerfile):
        if word == "ENV":
            yield f"export {placed(rest)}"
        elif word == "WORKDIR":
            yield f"mkdir -p {placed(rest)}; cd {placed(rest)}"
        elif word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                to = f"{target}/{source}" if target == "./" else target
                yield f'mkdir -p "$(dirname {to})"; cp -R "$context"/{source} {to}'
        elif word == "RUN" and rest.startswith("apt-get "):
            yield "command -v gcc >/dev/null || { echo 'gcc is needed' >&2; exit 1; }"
        elif word == "RUN":
            yield placed(rest)
        else:
            raise ValueError(f"an instruction this script does not know: {word}")


if __name__ == "__main__":
    name, place = sys.argv[1:]
    sys.stdout.write("\n".join(script(Path(name).read_text(), str(Path(place).resolve()))) + "\n")
