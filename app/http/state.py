"""Whether this process is fit to serve: what /healthz and /readyz answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.http.certificates import utc_now
from app.http.tls import Served


@dataclass(slots=True)
class Health:
    """The state of one process. `served` is where the live certificate keeps its pair.

    `warm` once a plan was made, `listening` once the HTTPS port is open, `draining` after SIGTERM.
    """

    served: Callable[[], Served]
    clock: Callable[[], datetime] = field(default=utc_now)
    warm: bool = False
    listening: bool = False
    draining: bool = False

    def obstacles(self) -> Mapping[str, str]:
        """Why no reviews should be sent here; empty when they should."""
        now, served = self.clock(), self.served()
        found = {}
        if self.draining:
            found["process"] = "shutting down"
        if not self.warm:
            found["planner"] = "warming up"
        if served.pair is None:
            found["certificate"] = served.complaint
        elif served.expired(now):
            found["certificate"] = f"the certificate ended at {served.pair.not_after.isoformat()}"
        elif not self.listening:
            found["port"] = "not open yet"
        return found

    def ailments(self) -> Mapping[str, str]:
        """Why this process should be started again; empty when it should not.

        A pair in its last hour means that renewals no longer reach this process: a new one mounts
        the volume afresh. Missing or bad files are no reason: a new process would find the same.
        """
        served = self.served()
        if served.overdue(self.clock()):
            return {"certificate": "ends within the hour, and no newer one has arrived"}
        return {}

    def notes(self) -> Mapping[str, str]:
        """What an operator should know though reviews are served."""
        served = self.served()
        if served.pair is not None and served.complaint:
            return {"certificate": f"still serving the old pair: {served.complaint}"}
        return {}
