"""The bill of materials names all that the lock names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from image.sbom import bill_of_materials, locked_packages

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_every_locked_package_and_hash_is_listed() -> None:
    program = [sys.executable, "image/sbom.py", "requirements.lock", "pyproject.toml"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, check=True)
    document = json.loads(ran.stdout)
    listed = {(each["name"], each["version"]) for each in document["components"]}
    assert listed == set(re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;]+)", LOCK, re.MULTILINE))
    hashes = [
        entry["content"]
        for each in document["components"]
        for reference in each["externalReferences"]
        for entry in reference["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", LOCK))
    assert document["metadata"]["component"]["name"] == "trainjob-advisor"
    assert len({each["bom-ref"] for each in document["components"]}) == len(listed)


def test_a_package_for_some_systems_says_which() -> None:
    text = (
        f"Odd_Name==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{'a' * 64}\n    # via x\n"
    )
    (component,) = bill_of_materials(text, name="x", version="1")["components"]
    assert component["purl"] == "pkg:pypi/odd-name@1.0"
    assert component["scope"] == "optional"
    assert component["properties"][0]["value"] == "sys_platform == 'win32'"


@pytest.mark.parametrize("line", ["httpx>=1", "httpx==1.0", "-e ."])
def test_what_is_not_pinned_with_hashes_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a package"):
        list(locked_packages(line))


def test_the_image_holds_it() -> None:
    assert "image/sbom.py requirements.lock pyproject.toml" in (ROOT / "Dockerfile").read_text()
