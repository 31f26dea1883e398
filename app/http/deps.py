"""What the routes need, given to `create_app` by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.admission.decide import Deps as AdmissionDeps
from app.advisor.advise import Desk
from app.http.bodies import BodyLimits
from app.http.runtimes import Prepare
from app.http.state import Health
from app.observability.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """The rooms behind the routes. `clock` counts seconds from anywhere and only forward.

    `prepare` runs before a review is decided and may wait, `None` where nothing needs to.
    """

    admission: AdmissionDeps
    desk: Desk
    metrics: Metrics
    health: Health
    limits: BodyLimits
    clock: Callable[[], float]
    version: str
    prepare: Prepare | None = None
