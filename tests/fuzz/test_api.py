"""The whole HTTP API against its description, many times more often than in the unit tests."""

from __future__ import annotations

import schemathesis
from hypothesis import settings
from structlog.testing import capture_logs

from tests.fuzz.doors import MAX_CPU_SECONDS, TALLY, check_error, client, promptly
from tests.unit.http.test_description import CHECKS, api

EXAMPLES = 150
SLOWER = {"/v1/cost": 15.0}
"""CPU seconds: a price list plans on every instance of the catalog, 3 s the first time."""


@api.parametrize()
@settings(settings.get_profile("fuzz"), max_examples=EXAMPLES)
def test_the_api_does_what_it_says(case: schemathesis.Case) -> None:
    TALLY["requests made from the API's description"] += 1
    most = SLOWER.get(case.operation.path, MAX_CPU_SECONDS)
    with promptly(most), capture_logs():
        answer = case.call()
    case.validate_response(answer, checks=CHECKS)


def test_names_cannot_leave_the_catalog() -> None:
    names = ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e", "a%00b", "x" * 5000)
    for base in ("/v1/models", "/v1/gpus", "/assets/0", "/assets", ""):
        for name in names:
            TALLY["paths that try to leave their folder"] += 1
            with capture_logs():
                answer = client().get(f"{base}/{name}")
            assert "root:" not in answer.text
            check_error(answer)
