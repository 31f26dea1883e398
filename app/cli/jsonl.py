"""One request a line, one answer a line, in the same order and in constant memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from app.advisor.errors import error_body
from app.cli.refuse import bad_input

MAX_LINE_BYTES = 7 * 1024 * 1024
"""The longest request, as over HTTP."""

Answer = Callable[[Any], dict[str, Any]]


def answer_lines(source: str, answer: Answer) -> None:
    """Answer every line of the file `source` (`-` for standard input) on standard output."""
    if source == "-":
        stream(sys.stdin.buffer, sys.stdout, answer)
        return
    try:
        with Path(source).open("rb") as requests:
            stream(requests, sys.stdout, answer)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as problem:
        message = f"`--jsonl` must be a readable file or `-`: {problem}"
        raise bad_input(message, path="--jsonl") from problem


def stream(requests: BinaryIO, answers: TextIO, answer: Answer) -> None:
    """Write the answer to each line of `requests`; a bad line's is an error that names it."""
    for number, line in enumerate(_lines(requests), start=1):
        body = _one(line, answer)
        if "error" in body:
            message = f"line {number}: {body['error']['message']}"
            body = {"error": body["error"] | {"message": message}}
        answers.write(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")
        answers.flush()


def _lines(requests: BinaryIO) -> Iterator[bytes | None]:
    """Each line, `None` for one beyond the limit (its bytes are read and dropped)."""
    while line := requests.readline(MAX_LINE_BYTES + 1):
        if line.endswith(b"\n") or len(line) <= MAX_LINE_BYTES:
            yield line
            continue
        while (rest := requests.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


def _one(line: bytes | None, answer: Answer) -> dict[str, Any]:
    if line is None:
        message = f"a line must be at most {MAX_LINE_BYTES} bytes"
        return error_body("invalid_request", message)
    if not line.strip():
        return error_body("invalid_json", "the line is empty; a line must be one JSON object")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as problem:
        return error_body("invalid_json", f"the line must be one JSON object: {problem}")
    return answer(request)
