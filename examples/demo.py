"""`make demo`: a real server, a TrainJob sent to its webhook, and the answer."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import yaml

EXAMPLE = Path(__file__).parent / "reviews" / "auto.json"
START_SECONDS = 30
SHOWN_CHARACTERS = 200
EXECUTABLE = Path(sys.executable).with_name("trainjob-advisor")


def main() -> None:
    """Start, ask, show, stop."""
    review = json.loads(EXAMPLE.read_text())
    job = review["request"]["object"]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as port:
        url = f"https://localhost:{port}/mutate"
        trust = ssl.create_default_context(cafile=Path(folder) / "ca.crt")
        show("The TrainJob", as_yaml(job))
        show(
            "Sent to the webhook",
            f"curl --cacert ca.crt -H 'Content-Type: application/json' \\\n"
            f"  --data @examples/reviews/auto.json {url}",
        )
        response = asked(url, review, trust)
        if response["allowed"]:
            patch = json.loads(base64.b64decode(response["patch"]))
            planned = {**review["request"], "object": jsonpatch.apply_patch(job, patch)}
            door = url.replace("/mutate", "/validate")
            verdict = asked(door, {**review, "request": planned}, trust)
    if not response["allowed"]:
        show("Denied", response["status"]["message"])
        sys.exit(1)
    after = planned["object"]
    show("The patch, decoded", "\n".join(json.dumps(shortened(each)) for each in patch))
    show("The TrainJob as it is stored", as_yaml(shortened(after)))
    reason = after["metadata"]["annotations"]["training.vsr.dev/auto-parallelism-reason"]
    show("Why", reason)
    show("What kubectl prints", "\n".join(f"Warning: {text}" for text in response["warnings"]))
    show("What /validate says of the planned job", "allowed" if verdict["allowed"] else verdict)
    show("All of it, uncut", "trainjob-advisor review examples/trainjobs/auto.yaml")
    question = ["--model", "llama-3-70b", "--gpu", "H100-SXM5-80GB", "--nodes", "8"]
    run("plan", *question)
    run("launch", "--launcher", "torchtitan", *question)
    run("cost", "--model", "llama-3-8b", "--tokens", "15e9", "--gpu", "H100-SXM5-80GB")


def asked(url: str, review: dict[str, Any], trust: ssl.SSLContext) -> dict[str, Any]:
    """The response to a review."""
    answer = httpx.post(url, json=review, verify=trust).raise_for_status()
    return dict(answer.json()["response"])


def run(*arguments: str) -> None:
    """One command of the command line, with what it prints."""
    done = subprocess.run([EXECUTABLE, *arguments], check=True, capture_output=True, text=True)  # noqa: S603 - our own program
    show(f"trainjob-advisor {' '.join(arguments)}", done.stdout)


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """A server with certificates of its own; its HTTPS port."""
    subprocess.run([EXECUTABLE, "certs", folder], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own program
    port, health_port = free_port(), free_port()
    settings = {
        "TRAINJOB_ADVISOR_HOST": "127.0.0.1",
        "TRAINJOB_ADVISOR_PORT": str(port),
        "TRAINJOB_ADVISOR_HEALTH_PORT": str(health_port),
        "TRAINJOB_ADVISOR_CERTIFICATE_DIR": str(folder),
        "TRAINJOB_ADVISOR_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen([EXECUTABLE, "serve"], env={**os.environ, **settings})  # noqa: S603 - our own program
    try:
        wait_until_ready(process, f"http://127.0.0.1:{health_port}/readyz")
        yield port
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Return once the server takes reviews; exit when it does not."""
    last = time.monotonic() + START_SECONDS
    while time.monotonic() < last and process.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    sys.exit("the server did not become ready")


def free_port() -> int:
    """A port nobody listens on."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311 - any will do
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def shortened(document: Any) -> Any:
    """The document with its long texts cut, for a screen."""
    if isinstance(document, dict):
        return {key: shortened(value) for key, value in document.items()}
    if isinstance(document, list):
        return [shortened(value) for value in document]
    if isinstance(document, str) and len(document) > SHOWN_CHARACTERS:
        return f"{document[:SHOWN_CHARACTERS]}... ({len(document)} characters)"
    return document


def as_yaml(document: Any) -> str:
    """A manifest as people write it."""
    return yaml.safe_dump(document, sort_keys=False, width=100).rstrip()


def show(title: str, text: str) -> None:
    """One part of the story."""
    sys.stdout.write(f"\n--- {title} {'-' * max(0, 90 - len(title))}\n\n{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
