"""Writes the example of README.md from what the planner answers now; `--check` only compares.

python examples/readme.py          # after a change of the cost model
python examples/readme.py --check  # in the tests: exit code 1 when README.md is behind
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
JOB = ROOT / "examples/trainjobs/auto.yaml"
BEGIN, END = "<!-- example -->\n", "<!-- /example -->"

PLANNED = ("tpDegree", "ppDegree", "cpDegree", "precision")
REASON = "training.vsr.dev/auto-parallelism-reason"


def review() -> dict[str, object]:
    """What the webhook answers for the example job."""
    command = [sys.executable, "-m", "app", "review", str(JOB), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own program
    return dict(json.loads(done.stdout)["response"])


def before() -> str:
    """The example job as it stands in its file, without the comment above it."""
    comment, _, job = JOB.read_text().partition("\n")
    assert comment.startswith("#")  # noqa: S101 - our own file
    return job


def added(patch: list[dict[str, object]]) -> dict[str, object]:
    """Everything the patch adds, by path, annotations spread out."""
    found: dict[str, object] = {}
    for operation in patch:
        path, value = str(operation["path"]), operation["value"]
        if path == "/metadata/annotations" and isinstance(value, dict):
            found |= {f"{path}/{key.replace('/', '~1')}": text for key, text in value.items()}
        else:
            found[path] = value
    return found


def example() -> str:
    """The block between the markers."""
    answer = review()
    patch = added(list(answer["patch"]))  # type: ignore[call-overload]
    spec = [f"  {name}: {patch[f'/spec/{name}']}" for name in PLANNED]
    shape = dict(patch["/spec/modelSpec"])  # type: ignore[call-overload]
    recomputes = str(shape["activationCheckpointing"]).lower()
    spec.append(
        f"  modelSpec: {{microBatchSize: {shape['microBatchSize']}, "
        f"activationCheckpointing: {recomputes}, ...}}"
    )
    spec.append("  env: [...]          # the collective environment that fabric and plan call for")
    reason = patch[f"/metadata/annotations/{REASON.replace('/', '~1')}"]
    warning = list(answer["warnings"])[0]  # type: ignore[call-overload]  # noqa: RUF015
    return (
        f"```yaml\n# before: what an ML engineer writes (examples/trainjobs/auto.yaml)\n{before()}"
        "```\n\n```yaml\n# after: what admission adds, and the API server stores\nspec:\n"
        + "\n".join(spec)
        + f"\n```\n\n`kubectl apply` prints `{warning}`, and the job carries the reason:\n\n"
        f"> {reason}\n"
    )


def main() -> int:
    """Rewrite or check; the exit code."""
    text = README.read_text()
    start = text.index(BEGIN) + len(BEGIN)
    wanted = text[:start] + example() + text[text.index(END) :]
    if "--check" in sys.argv[1:]:
        return int(text != wanted)
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
