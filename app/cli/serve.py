"""`trainjob-advisor serve`: the webhook and the HTTP API."""

from __future__ import annotations

import importlib


def command() -> None:
    """Serve the webhook and the HTTP API.

    Settings are `TRAINJOB_ADVISOR_*` variables.
    """
    # By name, as one hands an application to a server: `main` composes this room, not vice versa.
    importlib.import_module("app.main").serve()
