"""Writes the software bill of materials of the image, CycloneDX 1.6 JSON, from the lock file.

    python image/sbom.py requirements.lock pyproject.toml > sbom.cdx.json

Only the standard library, no clock and no random number: the same lock gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)\s*(?:;\s*(.+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """One package of the lock. `marker` says where it is installed, "" is everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL."""
        name = re.sub(r"[-_.]+", "-", self.name).lower()
        return f"pkg:pypi/{name}@{self.version}"


def locked_packages(lock: str) -> Iterator[Locked]:
    """Each package of a lock file with hashes. Raises ValueError for a line that is neither."""
    for line in lock.replace("\\\n", " ").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        pin, hashes = _PIN.match(text.partition("--hash=")[0].strip()), _HASH.findall(text)
        if pin is None or not hashes:
            raise ValueError(f"not a package with its version and hashes: {text[:80]}")
        name, version, marker = pin.groups()
        yield Locked(
            name=name, version=version, marker=(marker or "").strip(), hashes=tuple(hashes)
        )


def component(package: Locked) -> dict[str, Any]:
    """A package as CycloneDX has it; the hashes are those of the files pip may install."""
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        "scope": "optional" if package.marker else "required",
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
            }
        ],
    }
    if package.marker:
        described["properties"] = [{"name": "python:marker", "value": package.marker}]
    return described


def bill_of_materials(lock: str, *, name: str, version: str) -> dict[str, Any]:
    """The whole document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"{name}@{version}",
                "name": name,
                "version": version,
            }
        },
        "components": [component(each) for each in locked_packages(lock)],
    }


def main(lock_path: str, project_path: str) -> None:
    """Write the document to standard output."""
    project = tomllib.loads(Path(project_path).read_text(encoding="utf-8"))["project"]
    lock = Path(lock_path).read_text(encoding="utf-8")
    document = bill_of_materials(lock, name=project["name"], version=project["version"])
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
