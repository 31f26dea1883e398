"""The API against its own description: what it allows is answered, what it forbids refused."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from structlog.testing import capture_logs

from app.catalog.loader import load_catalog
from app.http.app import create_app
from app.http.settings import Settings
from app.main import compose

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
_app = create_app(compose(Settings(), load_catalog()).deps)
described = schemathesis.openapi.from_asgi("/openapi.json", _app)
api = described.exclude(path_regex="/readyz|/v1/cost")
sweeps = described.include(path_regex="/v1/cost")
"""A sweep plans hundreds of clusters: seconds, so it is asked a few times only."""
SWEEP_SECONDS = 120


@api.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_api_does_what_it_says(case: schemathesis.Case) -> None:
    with capture_logs():
        case.call_and_validate(checks=CHECKS)


@sweeps.parametrize()
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_sweep_does_what_it_says(case: schemathesis.Case) -> None:
    with capture_logs():
        case.call_and_validate(checks=CHECKS, timeout=SWEEP_SECONDS)
