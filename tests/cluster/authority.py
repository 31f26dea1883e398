"""A certificate authority for one test run: servers on loopback and clients of the API server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """Paths of a PEM certificate and its PEM private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs what a test run needs. Its own certificate lies in `certificate`."""

    def __init__(self, folder: Path, *, name: str = "tests") -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        self._key = ec.generate_private_key(ec.SECP256R1())
        root = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = self._write(f"{name}-ca.crt", _pem(root))

    def server(self, name: str, *, dns_names: tuple[str, ...] = ("localhost",)) -> KeyPair:
        """Returns a pair for a server on 127.0.0.1 that also answers to `dns_names`."""
        alternatives = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternatives += [x509.DNSName(dns) for dns in dns_names]
        return self._issue(
            name,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName(alternatives),
        )

    def client(self, user: str, *, groups: tuple[str, ...] = ()) -> KeyPair:
        """Returns a pair that Kubernetes reads as `user`, member of `groups`."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        name = user.replace(":", "-")
        return self._issue(name, x509.Name(subject), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def signing_key(self, name: str) -> KeyPair:
        """Returns a bare key pair, as service account tokens are signed with."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return KeyPair(
            certificate=self._write(f"{name}.pub", public),
            key=self._write(f"{name}.key", _key_pem(key)),
        )

    def _issue(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return KeyPair(
            certificate=self._write(f"{name}.crt", _pem(builder.sign(self._key, hashes.SHA256()))),
            key=self._write(f"{name}.key", _key_pem(key)),
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(content)
        path.chmod(0o600)
        return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
