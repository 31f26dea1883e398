"""`trainjob-advisor gpus`: the GPUs of the catalog."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.desk import open_catalog
from app.cli.models import CatalogOption
from app.cli.refuse import CannotAnswer
from app.cli.screen import console, print_json, table


def command(
    search: Annotated[
        str, typer.Argument(help="Keep those whose name holds this word; or a node label value.")
    ] = "",
    *,
    catalog: CatalogOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `GET /v1/gpus` answers.")
    ] = False,
) -> None:
    """List the GPUs of the catalog: memory, dense peak rates, links one way."""
    from app.advisor.errors import Refusal
    from app.advisor.listing import gpus_body

    body = gpus_body(open_catalog(catalog), search)
    if isinstance(body, Refusal):
        raise CannotAnswer(body)
    if json:
        print_json(body)
    else:
        _show(body["gpus"])


def _show(gpus: list[dict[str, Any]]) -> None:
    from app.planner.explain import gib

    rates = ("bf16", "fp8")
    shown = table(
        "GPU",
        "GiB",
        "TB/s",
        *(f"{rate} TFLOP/s" for rate in rates),
        "NVLink GB/s",
        "domain",
        right=range(1, 7),
    )
    for gpu in gpus:
        peaks = gpu["peak_flop_per_second"]
        link = gpu["nvlink_bytes_per_second"]
        shown.add_row(
            gpu["name"],
            gib(gpu["memory_bytes"]),
            f"{gpu['hbm_bytes_per_second'] / 1e12:.2f}",
            *(f"{peaks[rate] / 1e12:,.0f}" if rate in peaks else "" for rate in rates),
            f"{link / 1e9:,.0f}" if link else "",
            f"{gpu['nvlink_domain_size']}" if link else "",
        )
    console().print(shown)
