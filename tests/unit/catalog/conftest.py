import pytest

from app.catalog.loader import Catalog, load_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The built-in catalog."""
    return load_catalog()
