"""One line per review or plan, as JSON on standard output (readable text on a terminal)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import orjson
import structlog
import structlog.tracebacks

LOGGED_CHARACTERS = 256
LOGGED_REJECTIONS = 20
"""A line of the log stays short however much a job gets wrong."""

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Shared by our own lines and those of the libraries.
_SHARED: tuple[Any, ...] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(*, level: LogLevel, form: LogFormat, stream: TextIO | None = None) -> None:
    """Send our lines and the libraries' to `stream` (standard output) in one form.

    Ours go to it as bytes and past the standard library's logging, which takes ten times as long
    for a line, and every review has one.
    """
    out = stream or sys.stdout
    as_text = form == "text" or (form == "auto" and out.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    rendered = _text() if as_text else _json()
    structlog.configure(
        processors=[*_SHARED, *rendered, _encoded],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(file=out.buffer),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    # Whoever speaks about one request is louder than useful; ours is the line per request.
    for name in ("uvicorn", "uvicorn.access", "httpx", "httpcore", "asyncio"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def _json() -> tuple[Any, ...]:
    # Where it went wrong, without local variables: those hold jobs, and jobs hold secrets.
    plain = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return structlog.processors.ExceptionRenderer(plain), json_line


def json_line(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> str:
    """The line as JSON, whatever is in it: what orjson refuses (half a surrogate) is escaped."""
    try:
        return orjson.dumps(fields, default=repr).decode()
    except TypeError:
        return json.dumps(fields, default=repr)


def _text() -> tuple[Any, ...]:
    plain = structlog.dev.plain_traceback
    return (structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain),)


def _encoded(_logger: Any, _method: str, line: Any) -> bytes:
    return str(line).encode("utf-8", "backslashreplace")


def logger() -> Any:
    """The service's logger. Lines are data: an event name and fields, no prose."""
    return structlog.get_logger()
