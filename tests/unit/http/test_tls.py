"""A live certificate: new pairs are taken, bad ones are not, and both are told."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from app.http.certificates import PairFiles
from app.http.state import Health
from app.http.tls import LiveCertificate
from app.observability.metrics import Metrics
from tests.faults.pairs import TestAuthority, TestPair, write_pair

AUTHORITY = TestAuthority()
FIRST, SECOND, RSA = AUTHORITY.pair(), AUTHORITY.pair(), AUTHORITY.pair(algorithm="rsa")


class Clock:
    """A clock that goes where the test puts it."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        """The time."""
        return self.now


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="0", planner="pure Python", catalog_version="0")


def live(folder: Path, metrics: Metrics, clock: Clock, **files: Path) -> LiveCertificate:
    names = PairFiles(certificate=folder / "tls.crt", key=folder / "tls.key", **files)
    return LiveCertificate(names, metrics, clock=clock)


def serial_shown(context: ssl.SSLContext, *, server_name: str | None = "localhost") -> int:
    """The serial number a client sees in a handshake with `context`, all in memory."""
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    trusting.check_hostname = server_name is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=server_name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(f"trainjob_advisor_{name}", labels)
    assert found is not None
    return found


@pytest.mark.parametrize("server_name", ["localhost", None], ids=["named", "unnamed"])
def test_each_handshake_shows_the_newest_pair(
    tmp_path: Path, metrics: Metrics, server_name: str | None
) -> None:
    """Also when an RSA pair follows an ECDSA one, and to clients that name no server."""
    certificate = live(tmp_path, metrics, Clock())
    for pair in (FIRST, RSA, SECOND):
        write_pair(tmp_path, pair)
        certificate.look()
        assert serial_shown(certificate.context, server_name=server_name) == pair.serial_number
    assert value(metrics, "certificate_reloads_total", result="loaded") == 3


def test_unchanged_files_are_not_loaded_again(tmp_path: Path, metrics: Metrics) -> None:
    write_pair(tmp_path, FIRST)
    certificate = live(tmp_path, metrics, Clock())
    for _ in range(3):
        certificate.look()
    assert value(metrics, "certificate_reloads_total", result="loaded") == 1


def mismatched() -> TestPair:
    return TestPair(certificate=FIRST.certificate, key=SECOND.key, serial_number=0)


@pytest.mark.parametrize(
    "bad",
    [
        mismatched(),
        AUTHORITY.pair(begins=timedelta(days=-9), lasts=timedelta(days=8)),
        TestPair(certificate=SECOND.certificate[:100], key=SECOND.key, serial_number=0),
        TestPair(certificate=b"", key=b"", serial_number=0),
    ],
    ids=["mismatched", "expired", "half-written", "empty"],
)
def test_a_bad_pair_leaves_the_old_one_in_place(
    tmp_path: Path, metrics: Metrics, bad: TestPair
) -> None:
    clock = Clock()
    write_pair(tmp_path, FIRST)
    certificate = live(tmp_path, metrics, clock)
    certificate.look()
    write_pair(tmp_path, bad)
    certificate.look()
    certificate.look()
    assert serial_shown(certificate.context) == FIRST.serial_number
    assert value(metrics, "certificate_files_rejected") == 1
    assert value(metrics, "certificate_reloads_total", result="rejected") == 1
    assert certificate.served.complaint
    write_pair(tmp_path, SECOND)
    certificate.look()
    assert serial_shown(certificate.context) == SECOND.serial_number
    assert value(metrics, "certificate_files_rejected") == 0


def test_a_pair_that_ends_while_it_is_served_is_told_once(tmp_path: Path, metrics: Metrics) -> None:
    """The files did not change, so nothing but the clock says that they are fit no more."""
    clock = Clock()
    write_pair(tmp_path, FIRST)
    certificate = live(tmp_path, metrics, clock)
    certificate.look()
    clock.now += timedelta(days=3650)
    with capture_logs() as lines:
        certificate.look()
        certificate.look()
    (line,) = lines
    assert line["event"] == "certificate_rejected"
    assert line["reason"].startswith("the certificate ended at ")
    assert value(metrics, "certificate_files_rejected") == 1


def test_without_a_pair_no_handshake_succeeds(tmp_path: Path, metrics: Metrics) -> None:
    certificate = live(tmp_path, metrics, Clock())
    certificate.look()
    with pytest.raises(ssl.SSLError):
        serial_shown(certificate.context)


def test_a_missing_authority_file_is_a_bad_pair(tmp_path: Path, metrics: Metrics) -> None:
    """A server that should know its clients never opens without knowing them."""
    write_pair(tmp_path, FIRST)
    certificate = live(tmp_path, metrics, Clock(), client_authorities=tmp_path / "clients.crt")
    certificate.look()
    assert certificate.served.pair is None
    assert "clients.crt" in certificate.served.complaint


@pytest.mark.parametrize(
    ("lasts", "left", "is_healthy"),
    [
        (timedelta(days=90), timedelta(hours=2), True),
        (timedelta(days=90), timedelta(minutes=59), False),
        # One hour is the shortest certificate there is: it always ends within the hour.
        (timedelta(hours=1), timedelta(minutes=30), True),
    ],
    ids=["two-hours-left", "last-hour", "short-lived"],
)
def test_a_pair_in_its_last_hour_asks_for_a_new_process(
    tmp_path: Path, metrics: Metrics, lasts: timedelta, left: timedelta, *, is_healthy: bool
) -> None:
    clock = Clock()
    write_pair(tmp_path, AUTHORITY.pair(begins=timedelta(0), lasts=lasts))
    clock.now += timedelta(seconds=2)
    certificate = live(tmp_path, metrics, clock)
    certificate.look()
    health = Health(served=lambda: certificate.served, clock=clock, warm=True, listening=True)
    clock.now += lasts - left
    assert bool(health.ailments()) is not is_healthy
    assert not health.obstacles()


def test_readiness_says_what_is_missing(tmp_path: Path, metrics: Metrics) -> None:
    clock = Clock()
    certificate = live(tmp_path, metrics, clock)
    health = Health(served=lambda: certificate.served, clock=clock)
    certificate.look()
    assert set(health.obstacles()) == {"planner", "certificate"}
    assert not health.ailments()
    write_pair(tmp_path, FIRST)
    certificate.look()
    health.warm = health.listening = True
    assert not health.obstacles()
    write_pair(tmp_path, mismatched())
    certificate.look()
    assert not health.obstacles()
    assert "still serving the old pair" in health.notes()["certificate"]
    clock.now += timedelta(days=91)
    assert set(health.obstacles()) == {"certificate"}
    health.draining = True
    assert set(health.obstacles()) == {"certificate", "process"}
