"""The whole service in one process: the real catalog, the real planner, no port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from app.catalog.loader import Catalog, load_catalog
from app.http.app import create_app
from app.http.settings import Settings
from app.main import Service, compose
from tests.unit.http.client import Client


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[EventDict]]:
    """What is logged, as data: an unconfigured logger prints whole catalogs with a traceback."""
    with capture_logs() as caught:
        yield caught


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The built-in facts."""
    return load_catalog()


@pytest.fixture
def service(catalog: Catalog) -> Service:
    """A service nobody has asked yet."""
    return compose(Settings(body_limit_bytes=256 * 1024, body_seconds=1), catalog)


@pytest.fixture
def http(service: Service) -> Client:
    """A client of the HTTPS port's application."""
    return Client(create_app(service.deps))
