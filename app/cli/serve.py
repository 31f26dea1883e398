"""`trainjob-advisor serve`: the webhook and the HTTP API."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer


def command(
    *,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="HTTPS port (8443).")] = None,
    health_port: Annotated[
        int | None, typer.Option("--health-port", help="Plain port of probes and metrics (8081).")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", help="Processes (1).")] = None,
    certificate_dir: Annotated[
        Path | None,
        typer.Option("--certificate-dir", help="Where tls.crt and tls.key lie (certs/generated)."),
    ] = None,
) -> None:
    """Serve the webhook and the HTTP API.

    Every setting is a `TRAINJOB_ADVISOR_*` variable; a flag wins over its variable.
    """
    flags = {
        "host": host,
        "port": port,
        "health_port": health_port,
        "workers": workers,
        "certificate_dir": certificate_dir,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    # By name, as one hands an application to a server: `main` composes this room, not vice versa.
    importlib.import_module("app.main").serve(given)
