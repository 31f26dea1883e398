"""The build stage of the Dockerfile as a shell script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from image.steps import instructions, script

ROOT = Path(__file__).parents[3]


def test_every_step_of_our_dockerfile_is_known() -> None:
    """What the stage does is what the script does, in its order, under the prefix alone."""
    text = (ROOT / "Dockerfile").read_text()
    lines = list(script(text, "/prefix"))
    assert sum(word == "RUN" for word, _ in instructions(text)) == text.count("\nRUN ") - 1
    whole = "\n".join(lines)
    assert "/prefix/opt/advisor/bin/pip install --require-hashes --only-binary :all:" in whole
    assert whole.index("--require-hashes") < whole.index("pip wheel") < whole.index("sbom.py")
    assert not re.search(r"(?<!/prefix)/(opt|src|tmp)/", whole)
    assert "apt-get" not in whole
    assert "useradd" not in whole


def test_the_script_does_what_the_stage_says(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1")
    stage = (
        "ARG A=1\nFROM x AS build\nENV NAME=value\nWORKDIR /src\nCOPY in.txt ./\n"
        "# RUN false\nRUN mkdir -p /opt/made \\\n && cat in.txt > /opt/made/out && echo $NAME\n"
        "FROM y\nRUN false\n"
    )
    done = subprocess.run(
        ["sh", "-e"],
        input="\n".join(script(stage, str(tmp_path / "prefix"))),
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "value\n"
    assert (tmp_path / "prefix/opt/made/out").read_text() == "1"


def test_another_instruction_is_refused() -> None:
    with pytest.raises(ValueError, match="ADD"):
        list(script("FROM x\nADD a b\n", "/prefix"))


def test_every_file_that_is_copied_reaches_the_engine() -> None:
    """`.dockerignore` lets in by name only: a COPY it does not know would fail the build."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = [rest.split()[:-1] for word, rest in instructions(dockerfile()) if word == "COPY"]
    assert {each for sources in copied for each in sources} <= let_in


def dockerfile() -> str:
    """Ours."""
    return (ROOT / "Dockerfile").read_text()
