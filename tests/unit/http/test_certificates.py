"""Which certificate files may be served, and how they are read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.http.certificates import BadPairError, PairBytes, PairFiles, judge, read_bytes
from tests.faults.pairs import SecretVolume, TestAuthority, TestPair, write_pair

AUTHORITY = TestAuthority()
GOOD, OTHER = AUTHORITY.pair(), AUTHORITY.pair()
SERVICE = "trainjob-advisor.trainjob-advisor.svc"


def content(pair: TestPair) -> PairBytes:
    return PairBytes(certificate=pair.certificate, key=pair.key)


def files(folder: Path) -> PairFiles:
    return PairFiles(certificate=folder / "tls.crt", key=folder / "tls.key")


@pytest.mark.parametrize("algorithm", ["ecdsa", "rsa"])
def test_a_good_pair_is_described(algorithm: str) -> None:
    pair = AUTHORITY.pair(algorithm=algorithm)
    judged = judge(content(pair), server_name="localhost", now=datetime.now(UTC))
    assert judged.serial_number == pair.serial_number
    assert judged.names == ("localhost", "127.0.0.1")
    assert timedelta(days=89) < judged.left(datetime.now(UTC)) < timedelta(days=90)


def test_a_chain_is_judged_by_its_leaf() -> None:
    chain = replace(content(GOOD), certificate=GOOD.certificate + AUTHORITY.certificate)
    judged = judge(chain, server_name="", now=datetime.now(UTC))
    assert judged.serial_number == GOOD.serial_number


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (replace(content(GOOD), key=OTHER.key), "the key is not the certificate's"),
        (replace(content(GOOD), key=b""), "a certificate file is empty"),
        (replace(content(GOOD), certificate=b"\n"), "a certificate file is empty"),
        (
            replace(content(GOOD), certificate=GOOD.certificate[:200]),
            "the certificate file holds no readable certificate",
        ),
        (
            replace(content(GOOD), key=GOOD.key[:80]),
            "the key file holds no readable key without a password",
        ),
        (content(AUTHORITY.pair(names=())), "the certificate has no subject alternative name"),
        (
            content(AUTHORITY.pair(names=("other.example",))),
            "the certificate is for other.example, not localhost",
        ),
        (
            content(AUTHORITY.pair(begins=timedelta(days=-9), lasts=timedelta(days=8))),
            "the certificate ended at ",
        ),
        (content(AUTHORITY.pair(begins=timedelta(days=1))), "the certificate begins at "),
    ],
    ids=[
        "mismatched", "no-key", "no-certificate", "half-certificate", "half-key", "no-names",
        "wrong-name", "ended", "not-begun",
    ],
)  # fmt: skip
def test_a_bad_pair_is_refused_with_its_reason(pair: PairBytes, reason: str) -> None:
    with pytest.raises(BadPairError, match=reason):
        judge(pair, server_name="localhost", now=datetime.now(UTC))


def test_a_wildcard_covers_the_name_of_the_service() -> None:
    pair = AUTHORITY.pair(names=("*.trainjob-advisor.svc",))
    judge(content(pair), server_name=SERVICE, now=datetime.now(UTC))


def test_both_files_are_read_from_one_version(tmp_path: Path) -> None:
    """Through the links of a Secret's volume."""
    volume = SecretVolume(tmp_path)
    for pair in (GOOD, OTHER):
        volume.write(pair)
        assert read_bytes(files(tmp_path)) == content(pair)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_pair(tmp_path, GOOD)
    (tmp_path / "tls.key").unlink()
    with pytest.raises(BadPairError, match=r"cannot read tls\.key"):
        read_bytes(files(tmp_path))


def test_any_changed_file_changes_the_digest() -> None:
    digests = {
        content(GOOD).digest,
        replace(content(GOOD), key=OTHER.key).digest,
        replace(content(GOOD), certificate=OTHER.certificate).digest,
        replace(content(GOOD), client_authorities=AUTHORITY.certificate).digest,
    }
    assert len(digests) == 4
