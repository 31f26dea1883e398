"""The whole service in one process: the real catalog, the real planner, no port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from app.catalog.loader import Catalog, load_catalog
from starlette.testclient import TestClient

from app.http.app import create_app
from app.http.settings import Settings
from app.main import Service, compose


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The built-in facts."""
    return load_catalog()


@pytest.fixture
def service(catalog: Catalog) -> Service:
    """A service nobody has asked yet."""
    return compose(Settings(body_limit_bytes=256 * 1024, body_seconds=1), catalog)


@pytest.fixture
def http(service: Service) -> Iterator[TestClient]:
    """A client of the HTTPS port's application."""
    with TestClient(create_app(service.deps)) as client:
        yield client
