"""The commands of docs/operations.md as a person runs them, read out of the page itself."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.advisor import ROOT
from tests.cluster.api_server import ApiServer

PAGE = ROOT / "docs/operations.md"
BLOCK = re.compile(r"^( *)```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:kubectl|k8s/|components:|x509:)[^`]+)`")


def section(title: str) -> str:
    """The text under a heading of the page."""
    _, found, rest = PAGE.read_text().partition(f"\n## {title}\n")
    assert found, f"{PAGE.name} has no section {title!r}"
    return rest.partition("\n## ")[0]


def commands(title: str) -> list[str]:
    """The commands in the console blocks of a section, in order, continuation lines included."""
    return [
        command.strip()
        for _, block in BLOCK.findall(section(title))
        for command in textwrap.dedent(block).removeprefix("$ ").split("\n$ ")
    ]


def command(title: str, beginning: str) -> str:
    """The one command of a section that begins so, in a block or in its text."""
    (found,) = {
        text
        for text in [*commands(title), *SPAN.findall(section(title))]
        if text.startswith(beginning)
    }
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Someone with kubectl, the administrator's rights and a checkout of the manifests."""

    server: ApiServer
    checkout: Path

    def run(self, text: str) -> str:
        """What a command of the page prints, run in the checkout; it must succeed."""
        path = os.pathsep.join([str(self.server.programs), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-ec", text],
            env={**os.environ, "PATH": path, "KUBECONFIG": str(self.server.kubeconfig)},
            cwd=self.checkout,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout
