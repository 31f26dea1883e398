"""`/`: the page for people, and the files it is made of, from memory.

Every file lies under `/assets/<digest of all files>/`, so it may be kept for ever and scripts that
import each other come from one version. Only the page itself is asked for again, by its ETag.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

FOLDER: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
HEADERS: Final = {
    # No inline script or style at all: nothing a name in the answer says can become code.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file, plain and compressed."""

    content: bytes
    compressed: bytes
    media_type: str

    @property
    def etag(self) -> str:
        """The name of this content. Weak, because both encodings share it."""
        return f'W/"{digest_of([self.content])}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All files of the page; `index` points at the others under their digest."""

    digest: str
    index: Asset
    assets: Mapping[str, Asset]


def page_router() -> APIRouter:
    """The page and its files, read once."""
    router = APIRouter(include_in_schema=False)
    page = load_page(FOLDER)

    @router.get("/")
    async def index(request: Request) -> Response:
        return answered(request, page.index, cache="no-cache")

    @router.get("/assets/{digest}/{path:path}")
    async def asset(request: Request, digest: str, path: str) -> Response:
        if digest != page.digest or path not in page.assets:
            raise HTTPException(404)
        return answered(request, page.assets[path], cache=FOR_EVER)

    return router


def load_page(folder: Path) -> Page:
    """The page as it lies in `folder`."""
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in MEDIA_TYPES
    }
    digest = digest_of(
        [part for name, content in files.items() for part in (name.encode(), content)]
    )
    index = files.pop(INDEX).replace(b"/assets/", f"/assets/{digest}/".encode())
    return Page(
        digest=digest,
        index=made_asset(INDEX, index),
        assets={name: made_asset(name, content) for name, content in files.items()},
    )


def made_asset(name: str, content: bytes) -> Asset:
    """A file as it is sent."""
    return Asset(
        content=content,
        compressed=gzip.compress(content, mtime=0),
        media_type=MEDIA_TYPES[Path(name).suffix],
    )


def digest_of(parts: list[bytes]) -> str:
    """Twelve letters that change when any of `parts` does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def answered(request: Request, asset: Asset, *, cache: str) -> Response:
    """The file, or that the caller has it already."""
    headers = {**HEADERS, "ETag": asset.etag, "Cache-Control": cache, "Vary": "Accept-Encoding"}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.compressed, headers=headers, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
