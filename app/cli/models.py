"""`trainjob-advisor models`: the models of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.desk import open_catalog
from app.cli.refuse import CannotAnswer
from app.cli.screen import console, print_json, table

SearchArgument = Annotated[str, typer.Argument(help="Keep those whose name holds this word.")]
CatalogOption = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        exists=True,
        file_okay=False,
        envvar="TRAINJOB_ADVISOR_CATALOG_DIR",
        help="A directory of own entries, over the built-in catalog.",
    ),
]


def command(
    search: SearchArgument = "",
    *,
    catalog: CatalogOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `GET /v1/models` answers.")
    ] = False,
) -> None:
    """List the models of the catalog."""
    from app.advisor.errors import Refusal
    from app.advisor.listing import models_body

    body = models_body(open_catalog(catalog), search)
    if isinstance(body, Refusal):
        raise CannotAnswer(body)
    if json:
        print_json(body)
    else:
        _show(body["models"])


def _show(models: list[dict[str, Any]]) -> None:
    from app.cli.plan_view import count_words

    shown = table("model", "params", "active", "layers", "hidden", "sequence", right=range(1, 6))
    for model in models:
        shape = model["architecture"]
        active = model["active_params"] if model["active_params"] != model["params"] else None
        shown.add_row(
            model["name"],
            count_words(model["params"]),
            count_words(active) if active else "",
            f"{shape['num_layers']}",
            f"{shape['hidden_size']:,}",
            f"{model['sequence_length']:,}",
        )
    console().print(shown)
