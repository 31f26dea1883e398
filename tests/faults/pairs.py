"""Certificate pairs for tests, and the folder layout of a Secret's volume."""

from __future__ import annotations

import ipaddress
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NAMES = ("localhost", "127.0.0.1")
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPair:
    """A certificate and its key in PEM."""

    __test__ = False

    certificate: bytes
    key: bytes
    serial_number: int


class TestAuthority:
    """Signs leaves of any age, name and key type."""

    __test__ = False

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test authority")
        now = datetime.now(UTC)
        self.certificate = (
            _builder(self._name, self._name, self._key, now - timedelta(days=900), timedelta(999))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )

    def pair(
        self,
        *,
        names: Sequence[str] = NAMES,
        begins: timedelta = timedelta(minutes=-5),
        lasts: timedelta = timedelta(days=90),
        algorithm: str = "ecdsa",
    ) -> TestPair:
        """A leaf whose life begins `begins` from now and lasts `lasts`."""
        key: Key = (
            rsa.generate_private_key(65537, 2048)
            if algorithm == "rsa"
            else ec.generate_private_key(ec.SECP256R1())
        )
        builder = _builder(_name("leaf"), self._name, key, datetime.now(UTC) + begins, lasts)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        leaf = builder.sign(self._key, hashes.SHA256())
        return TestPair(
            certificate=leaf.public_bytes(Encoding.PEM),
            key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            serial_number=leaf.serial_number,
        )


class SecretVolume:
    """A folder as kubelet keeps it: files link into `..data`, which is swapped in one step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0

    def write(self, pair: TestPair, *, authority: bytes = b"") -> None:
        """Publish a new version of the files and remove the old one."""
        self._version += 1
        old = self.folder / f"..{self._version - 1}"
        version = self.folder / f"..{self._version}"
        version.mkdir(parents=True)
        files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority}
        for name, content in files.items():
            (version / name).write_bytes(content)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        beside = self.folder / "..data_tmp"
        beside.symlink_to(version.name)
        beside.replace(self.folder / "..data")
        if old.exists():
            shutil.rmtree(old)


def write_pair(folder: Path, pair: TestPair) -> None:
    """Plain files, one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, begins: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + lasts)
    )
