"""`trainjob-advisor certs`: a private authority and a server certificate for development.

In a cluster cert-manager does this; the files have the names it gives them in a Secret.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from app.cli.refuse import bad_input
from app.cli.screen import print_json


def command(
    directory: Annotated[
        Path, typer.Argument(help="Where to write ca.crt, tls.crt and tls.key.")
    ] = Path("certs/generated"),
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A further name or address to serve. Repeatable."),
    ] = None,
    service: Annotated[
        str, typer.Option("--service", help="Name of the Kubernetes Service.")
    ] = "trainjob-advisor",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Its namespace.")
    ] = "trainjob-advisor",
    days: Annotated[int, typer.Option("--days", min=1, max=825, help="Days until it ends.")] = 365,
    force: Annotated[
        bool, typer.Option("--force", help="Make new files even if good ones are there.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Make development certificates, unless good ones are there.

    The authority's key is forgotten at once: nobody can sign with it later.
    """
    from app.cli.certificates import FILES, host_names, is_good, write_pair

    names = host_names(service=service, namespace=namespace, more=host or ())
    made = force or not is_good(directory, names, now=datetime.now(UTC))
    if made:
        try:
            write_pair(directory, names, now=datetime.now(UTC), days=days)
        except OSError as problem:
            raise bad_input(f"`DIRECTORY` must be writable: {problem}") from problem
    if json:
        files = {name: str(directory / name) for name in FILES}
        print_json({"made": made, "files": files, "names": list(names)})
    else:
        did = "made" if made else "kept, still good"
        typer.echo(f"{did}: {directory / 'tls.crt'} for {', '.join(names)}")
