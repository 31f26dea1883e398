"""The page's files: from memory, kept for ever, nothing in them that a strict policy forbids."""

from __future__ import annotations

import hashlib
import re

import httpx
import pytest

from app.http.page_files import FOLDER, load_page
from tests.unit.http.client import Client

PAGE = load_page(FOLDER)
OWN = {
    name: asset.content.decode()
    for name, asset in PAGE.assets.items()
    if name.endswith((".js", ".css")) and not name.startswith("vendor/")
} | {"index.html": PAGE.index.content.decode()}
scripts = pytest.mark.parametrize("name", [name for name in OWN if name.endswith(".js")])


def get(http: Client, path: str, **headers: str) -> httpx.Response:
    return http.get(path, headers={"accept-encoding": "identity", **headers})


def test_the_page_points_at_files_that_are_there(http: Client) -> None:
    page = get(http, "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"
    linked = re.findall(r'(?:href|src)="(/assets/[^"]+)"', page.text)
    assert len(linked) == 3
    for path in linked:
        asset = get(http, path)
        assert asset.status_code == 200
        assert "immutable" in asset.headers["cache-control"]
        assert asset.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", f"/assets/{PAGE.digest}/js/main.js"])
def test_what_a_reader_has_is_not_sent_again(http: Client, path: str) -> None:
    first = get(http, path)
    again = get(http, path, **{"if-none-match": f'"other", {first.headers["etag"]}'})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    assert get(http, path, **{"if-none-match": '"other"'}).status_code == 200


def test_files_are_compressed_for_those_who_read_that(http: Client) -> None:
    plain = get(http, "/")
    packed = get(http, "/", **{"accept-encoding": "gzip, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.text == plain.text


@pytest.mark.parametrize(
    "path",
    ["/assets/000000000000/js/main.js", f"/assets/{PAGE.digest}/js/none.js",
     f"/assets/{PAGE.digest}/../page_files.py", f"/assets/{PAGE.digest}/%2e%2e/app.py"],
)  # fmt: skip
def test_nothing_else_is_served(http: Client, path: str) -> None:
    assert get(http, path).status_code == 404


def test_the_policy_allows_no_inline_code(http: Client) -> None:
    policy = get(http, "/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    page = OWN["index.html"]
    assert not re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


@scripts
def test_no_script_parses_markup(name: str) -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    assert not re.findall(banned, OWN[name])


@scripts
def test_every_import_is_a_file(name: str) -> None:
    folder = FOLDER / name
    for path in re.findall(r'from "(\.[^"]+)"', OWN[name]):
        assert (folder.parent / path).resolve().is_file(), path


@pytest.mark.parametrize("name", OWN)
def test_no_address_outside_is_named(name: str) -> None:
    found = set(re.findall(r"https?://[^\s\"'`]+", OWN[name]))
    assert found <= {"http://www.w3.org/2000/svg"}


def test_the_vendored_library_is_the_one_its_note_names() -> None:
    note = (FOLDER / "vendor" / "README.md").read_text()
    library = PAGE.assets["vendor/chart.umd.min.js"].content
    assert hashlib.sha256(library).hexdigest() in note
    version = re.search(rb"Chart\.js v([\d.]+)", library)
    assert version
    assert version[1].decode() in note
    assert "MIT" in (FOLDER / "vendor" / "LICENSE.md").read_text()
