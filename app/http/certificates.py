"""The certificate files: read together, judged before they are used.

Files are compared by content, not by time or inode: a Secret's volume is replaced by swapping a
symbolic link, and a copy may keep its times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key


class BadPairError(Exception):
    """The files on disk are not fit to serve. The message says why, for an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """Where a pair lies, and the name it must hold (empty: any).

    `client_authorities` are those whose clients are let in; `None` lets in anyone.
    """

    certificate: Path
    key: Path
    client_authorities: Path | None = None
    server_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBytes:
    """What the files held at one moment."""

    certificate: bytes
    key: bytes
    client_authorities: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Changes when any of the files does."""
        parts = (self.certificate, self.key, self.client_authorities or b"")
        return sha256(b"".join(sha256(part).digest() for part in parts)).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate chain and its key that may be served now."""

    content: PairBytes
    serial_number: int
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]

    def left(self, now: datetime) -> timedelta:
        """How long it still holds."""
        return self.not_after - now

    @property
    def lifetime(self) -> timedelta:
        """From its first to its last moment."""
        return self.not_after - self.not_before


def read_bytes(files: PairFiles) -> PairBytes:
    """Both files, from one version of the volume they lie in.

    The directory is resolved first: between two reads a swapped `..data` link would otherwise give
    the certificate of one version and the key of the next. Raises `BadPairError`.
    """
    try:
        return _read_together(files)
    except OSError:
        pass  # the volume may have been swapped between the two reads: look once more
    try:
        return _read_together(files)
    except OSError as problem:
        name = Path(str(problem.filename)).name if problem.filename else "the files"
        raise BadPairError(f"cannot read {name}: {problem.strerror}") from problem


def judge(content: PairBytes, *, server_name: str, now: datetime) -> Pair:
    """The pair, if it may be served at `now`; raises `BadPairError` otherwise."""
    if not content.certificate.strip() or not content.key.strip():
        raise BadPairError("a certificate file is empty")
    leaf = _leaf(content.certificate)
    if leaf.public_key() != _private_key(content.key).public_key():
        raise BadPairError("the key is not the certificate's")
    names = _names(leaf)
    _check_names(names, server_name)
    if now >= leaf.not_valid_after_utc:
        raise BadPairError(f"the certificate ended at {leaf.not_valid_after_utc.isoformat()}")
    if now < leaf.not_valid_before_utc:
        raise BadPairError(f"the certificate begins at {leaf.not_valid_before_utc.isoformat()}")
    return Pair(
        content=content,
        serial_number=leaf.serial_number,
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        names=names,
    )


def utc_now() -> datetime:
    """The clock of the shell."""
    return datetime.now(UTC)


def _read_together(files: PairFiles) -> PairBytes:
    certificate, key = (path.resolve(strict=True) for path in (files.certificate, files.key))
    if certificate.parent != key.parent and files.certificate.parent == files.key.parent:
        key = certificate.parent / key.name
    authorities = files.client_authorities
    return PairBytes(
        certificate=certificate.read_bytes(),
        key=key.read_bytes(),
        client_authorities=authorities.read_bytes() if authorities else None,
    )


def _leaf(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as problem:
        raise BadPairError("the certificate file holds no readable certificate") from problem


def _private_key(pem: bytes) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise BadPairError("the key file holds no readable key without a password") from problem


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    dns = held.get_values_for_type(x509.DNSName)
    return (*dns, *(str(address) for address in held.get_values_for_type(x509.IPAddress)))


def _check_names(names: tuple[str, ...], server_name: str) -> None:
    # Clients look at the alternative names only; a common name counts for nothing.
    if not names:
        raise BadPairError("the certificate has no subject alternative name")
    wildcard = "*." + server_name.partition(".")[2]
    if server_name and server_name not in names and wildcard not in names:
        raise BadPairError(f"the certificate is for {', '.join(names)}, not {server_name}")
