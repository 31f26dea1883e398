"""What the framework costs: the least handlers that FastAPI has, served the way ours is.

`/raw` takes and answers bytes, as our doors do. `/mutate` is what a tutorial writes: a mapping in,
a mapping out, and the framework does the rest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response


def bare_app() -> FastAPI:
    """Every review is allowed."""
    app = FastAPI(openapi_url=None)

    @app.post("/raw")
    async def raw(request: Request) -> Response:
        review = orjson.loads(await request.body())
        return Response(orjson.dumps(allowed(review)), media_type="application/json")

    @app.post("/mutate")
    async def mutate(review: dict[str, Any]) -> dict[str, Any]:
        return allowed(review)

    return app


def allowed(review: dict[str, Any]) -> dict[str, Any]:
    """The shortest answer."""
    response = {"uid": review["request"]["uid"], "allowed": True}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


def main() -> None:
    """Serve with the settings of `serve` that matter here."""
    folder = Path(os.environ["TRAINJOB_ADVISOR_CERTIFICATE_DIR"])
    uvicorn.run(
        bare_app(),
        host=os.environ["TRAINJOB_ADVISOR_HOST"],
        port=int(os.environ["TRAINJOB_ADVISOR_PORT"]),
        ssl_certfile=folder / os.environ["TRAINJOB_ADVISOR_CERTIFICATE_FILE"],
        ssl_keyfile=folder / os.environ["TRAINJOB_ADVISOR_KEY_FILE"],
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main()
