"""Development certificates: made once, right for the names, renewed before they end."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from app.cli.certificates import FILES, host_names, is_good, write_pair

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = host_names(service="advisor", namespace="ml", more=("10.0.0.7", "gpu.example"))


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A directory with good files."""
    write_pair(tmp_path / "new", NAMES, now=NOW, days=90)
    return tmp_path / "new"


def test_names_cover_the_service_and_this_machine() -> None:
    assert {"localhost", "127.0.0.1", "::1", "advisor.ml.svc", "10.0.0.7"} <= set(NAMES)


def test_a_server_can_load_what_was_written(pair: Path) -> None:
    context = ssl.create_default_context(cafile=pair / "ca.crt")
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair / "tls.crt", pair / "tls.key")
    assert context.cert_store_stats()["x509_ca"] == 1


def test_addresses_are_addresses_and_names_are_names(pair: Path) -> None:
    held = x509.load_pem_x509_certificate((pair / "tls.crt").read_bytes())
    named = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "advisor.ml.svc" in named.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in map(str, named.get_values_for_type(x509.IPAddress))


def test_the_key_is_for_its_owner_only(pair: Path) -> None:
    assert (pair / "tls.key").stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in pair.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("names", "now", "good"),
    [
        (NAMES, NOW, True),
        (NAMES[:2], NOW, True),
        ((*NAMES, "other.example"), NOW, False),
        (NAMES, NOW + timedelta(days=84), False),
    ],
    ids=["fresh", "fewer names", "a new name", "ends within a week"],
)
def test_a_pair_is_good_while_it_serves(
    pair: Path, names: tuple[str, ...], now: datetime, *, good: bool
) -> None:
    assert is_good(pair, names, now=now) is good


@pytest.mark.parametrize("name", FILES)
def test_broken_or_foreign_files_are_not_good(pair: Path, tmp_path: Path, name: str) -> None:
    write_pair(tmp_path / "other", NAMES, now=NOW, days=90)
    (pair / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert not is_good(pair, NAMES, now=NOW)
    (pair / name).write_text("not PEM")
    assert not is_good(pair, NAMES, now=NOW)
    (pair / name).unlink()
    assert not is_good(pair, NAMES, now=NOW)
