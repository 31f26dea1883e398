"""Certificates come late, change under load, and go bad."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.faults.load import Tally, client
from tests.faults.pairs import SecretVolume, TestAuthority, TestPair, write_pair
from tests.faults.service import Service, review, serving, wait_for

POLL_SECONDS = 0.2
SOON_SECONDS = 5.0


@pytest.mark.asyncio
@pytest.mark.parametrize("workers", [1, 3], ids=["one-worker", "three-workers"])
async def test_rotation_under_load_fails_no_handshake(
    tmp_path: Path, authority: TestAuthority, workers: int
) -> None:
    """50 swaps of `..data`, key and certificate together; every worker follows."""
    volume = SecretVolume(tmp_path / "tls")
    pairs = [authority.pair() for _ in range(51)]
    volume.write(pairs[0])
    with serving(tmp_path / "tls", authority, workers=workers) as service:
        tally, stop = Tally(), asyncio.Event()
        clients = [
            asyncio.create_task(
                client(
                    service.url,
                    service.trust,
                    tally,
                    stop,
                    pause_seconds=0.02,
                    fresh_connections=fresh,
                )
            )
            for fresh in (True, True, False)
        ]
        for pair in pairs[1:]:
            volume.write(pair)
            await asyncio.sleep(0.1)
        await asyncio.sleep(3 * POLL_SECONDS)
        shown = {await asyncio.to_thread(service.serial_number) for _ in range(8 * workers)}
        stop.set()
        await asyncio.gather(*clients)
        assert not tally.problems
        assert len(tally.seconds) > 50
        assert shown == {pairs[-1].serial_number}
        for worker in range(workers):
            assert service.metric("certificate_files_rejected", worker=worker) == 0


def mismatched(authority: TestAuthority) -> TestPair:
    return TestPair(
        certificate=authority.pair().certificate, key=authority.pair().key, serial_number=0
    )


def half_written(authority: TestAuthority) -> TestPair:
    pair = authority.pair()
    return TestPair(certificate=pair.certificate[:150], key=pair.key, serial_number=0)


def expired(authority: TestAuthority) -> TestPair:
    return authority.pair(begins=timedelta(days=-2), lasts=timedelta(days=1))


def wrong_name(authority: TestAuthority) -> TestPair:
    return authority.pair(names=("elsewhere.example",))


BAD_PAIRS = pytest.mark.parametrize("bad", [mismatched, half_written, expired, wrong_name])


@BAD_PAIRS
def test_a_bad_pair_is_told_and_the_old_one_kept(
    tmp_path: Path, authority: TestAuthority, bad: Callable[[TestAuthority], TestPair]
) -> None:
    good, next_ = authority.pair(), authority.pair()
    write_pair(tmp_path / "tls", good)
    with serving(tmp_path / "tls", authority, server_name="localhost") as service:
        write_pair(tmp_path / "tls", bad(authority))
        wait_for(lambda: service.metric("certificate_files_rejected") == 1, SOON_SECONDS, "no word")
        assert service.serial_number() == good.serial_number
        answer = service.probe("/readyz")
        assert answer.status_code == 200
        assert "still serving the old pair" in answer.json()["notes"]["certificate"]
        write_pair(tmp_path / "tls", next_)
        wait_for(lambda: service.serial_number() == next_.serial_number, SOON_SECONDS, "not taken")
        assert service.metric("certificate_files_rejected") == 0


@BAD_PAIRS
def test_with_bad_files_at_the_start_the_process_waits(
    tmp_path: Path, authority: TestAuthority, bad: Callable[[TestAuthority], TestPair]
) -> None:
    """Up, alive, not ready, and nobody can reach the HTTPS port; good files change all that."""
    write_pair(tmp_path / "tls", bad(authority))
    with serving(tmp_path / "tls", authority, ready=False, server_name="localhost") as service:
        assert_waiting(service)
        good = authority.pair()
        write_pair(tmp_path / "tls", good)
        wait_for(service.is_ready, SOON_SECONDS, "never ready", service.log)
        assert service.serial_number() == good.serial_number


def test_files_may_come_late_go_and_come_back(tmp_path: Path, authority: TestAuthority) -> None:
    with serving(tmp_path / "tls", authority, ready=False) as service:
        assert_waiting(service)
        first, second = authority.pair(), authority.pair()
        SecretVolume(tmp_path / "tls").write(first)
        wait_for(service.is_ready, SOON_SECONDS, "never ready", service.log)
        shutil.rmtree(tmp_path / "tls")
        wait_for(lambda: service.metric("certificate_files_rejected") == 1, SOON_SECONDS, "no word")
        assert service.serial_number() == first.serial_number
        SecretVolume(tmp_path / "tls").write(second)
        wait_for(lambda: service.serial_number() == second.serial_number, SOON_SECONDS, "not taken")


def assert_waiting(service: Service) -> None:
    assert service.process.poll() is None
    assert service.probe("/healthz").status_code == 200
    answer = service.probe("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "not_ready"
    assert not service.is_open()


def test_client_certificates_are_asked_for_and_renewed(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """The API server of our authority is heard, others are not; the authority may change."""
    volume = SecretVolume(tmp_path / "tls")
    clients, others = TestAuthority(), TestAuthority()
    volume.write(authority.pair(), authority=clients.certificate)
    settings = {"client_ca_file": tmp_path / "tls" / "ca.crt"}
    with serving(tmp_path / "tls", authority, **settings) as service:
        known, unknown = (
            trusting(service.trust, who.pair(), tmp_path) for who in (clients, others)
        )
        assert httpx.post(f"{service.url}/mutate", json=review(), verify=known).status_code == 200
        for context in (unknown, service.trust):
            with pytest.raises(httpx.TransportError):
                httpx.post(f"{service.url}/mutate", json=review(), verify=context)
        volume.write(authority.pair(), authority=others.certificate)
        wait_for(lambda: is_heard(service.url, unknown), SOON_SECONDS, "not heard")
        assert not is_heard(service.url, known)


def trusting(trust: ssl.SSLContext, pair: TestPair, folder: Path) -> ssl.SSLContext:
    write_pair(folder / "client", pair)
    trust.load_cert_chain(folder / "client/tls.crt", folder / "client/tls.key")
    return trust


def is_heard(url: str, context: ssl.SSLContext) -> bool:
    try:
        return httpx.get(f"{url}/healthz", verify=context).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
