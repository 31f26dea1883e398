"""A private authority and a server certificate it signed, as files."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FILES = AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
RENEW_DAYS = 7
"""A pair that ends within so many days is made anew."""
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Who signs: a name and a key."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey


def host_names(*, service: str, namespace: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Every name and address the server answers to."""
    inside = f"{service}.{namespace}.svc"
    own = ("localhost", "127.0.0.1", "::1", service, f"{service}.{namespace}", inside)
    return tuple(dict.fromkeys((*own, f"{inside}.cluster.local", *more)))


def is_good(directory: Path, names: Sequence[str], *, now: datetime) -> bool:
    """Whether the files are there, belong together, name `names` and do not end soon."""
    try:
        authority, held = (
            x509.load_pem_x509_certificate((directory / name).read_bytes())
            for name in (AUTHORITY, CERTIFICATE)
        )
        key = load_pem_private_key((directory / KEY).read_bytes(), password=None)
        held.verify_directly_issued_by(authority)
        named = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    lasts = min(held.not_valid_after_utc, authority.not_valid_after_utc) - now
    belongs = key.public_key() == held.public_key()
    return belongs and lasts > timedelta(days=RENEW_DAYS) and set(_general(names)) <= set(named)


def write_pair(directory: Path, names: Sequence[str], *, now: datetime, days: int) -> None:
    """Write a new authority, and a certificate and key it signed; it can sign no more."""
    authority_name = _name("TrainJob Advisor development authority")
    issuer = Issuer(name=authority_name, key=ec.generate_private_key(ec.SECP256R1()))
    key = ec.generate_private_key(ec.SECP256R1())
    ends = now + timedelta(days=days)
    authority = _authority(issuer, now=now, ends=ends)
    certificate = _server(names, key, issuer, now=now, ends=ends)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / AUTHORITY, authority.public_bytes(Encoding.PEM), mode=0o644)
    _write(directory / CERTIFICATE, certificate.public_bytes(Encoding.PEM), mode=0o644)
    _write(directory / KEY, private, mode=0o600)


def _authority(issuer: Issuer, *, now: datetime, ends: datetime) -> x509.Certificate:
    builder = _builder(issuer.name, issuer.key, issuer, now=now, ends=ends)
    basic = x509.BasicConstraints(ca=True, path_length=0)
    return (
        builder.add_extension(basic, critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(issuer.key, hashes.SHA256())
    )


def _server(
    names: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    issuer: Issuer,
    *,
    now: datetime,
    ends: datetime,
) -> x509.Certificate:
    builder = _builder(_name(names[0]), key, issuer, now=now, ends=ends)
    basic = x509.BasicConstraints(ca=False, path_length=None)
    serves = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return (
        builder.add_extension(basic, critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(serves, critical=False)
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: Issuer,
    *,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(ends)
        .add_extension(subject_key, critical=False)
        .add_extension(issuer_key, critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(names: Sequence[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the file in one step, so that a server that watches never reads half of it."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    beside.replace(path)
