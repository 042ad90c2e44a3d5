"""Detached signatures of a release index: Ed25519, and one line of hexadecimal for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotbuild.errors import ReleaseError, TrustError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_KEY = re.compile(r"[0-9a-f]{64}")


def create_key() -> tuple[bytes, str]:
    """A key: the private part as PEM (PKCS 8, not encrypted) and the public part in hexadecimal."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, key.public_key().public_bytes_raw().hex()


def public_key(private_pem: bytes, where: str = "the private key") -> str:
    """The public part of a private key, in hexadecimal. Raises ReleaseError as `sign`."""
    return _load(private_pem, where).public_key().public_bytes_raw().hex()


def sign(data: bytes, private_pem: bytes, where: str = "the private key") -> str:
    """The text of a signature file for exactly these bytes. `where` is what messages call the key.

    Raises ReleaseError if `private_pem` is not an Ed25519 key without a password.
    """
    return _load(private_pem, where).sign(data).hex() + "\n"


def verify(data: bytes, signature: str, keys: Sequence[str], where: str) -> str:
    """The key, one of `keys`, that signed `data`. `signature` is the text of the signature file:
    one line for each signature, of which one by one of `keys` is enough. `where` is what messages
    call the signed file.

    Raises TrustError, which says what is wrong and with which keys.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not keys:
        raise TrustError(f"{where}: no key is known that may sign it; name one with --key")
    for key in keys:
        if not _KEY.fullmatch(key):
            raise TrustError(
                f"key {key!r}: expected 64 digits of lower-case hexadecimal, an Ed25519 public key"
            )
    lines = signature.splitlines()
    for line in lines or [""]:
        if not _SIGNATURE.fullmatch(line):
            raise TrustError(
                f"{where}: its signature file is malformed: expected lines of 128 digits of "
                f"lower-case hexadecimal, got {line[:140]!r}"
            )
    for key in keys:
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        except ValueError as error:
            raise TrustError(f"key {key}: not an Ed25519 public key: {error}") from error
        for line in lines:
            try:
                public.verify(bytes.fromhex(line), data)
            except InvalidSignature:
                continue
            return key
    raise TrustError(
        f"{where}: signed by none of the trusted keys ({', '.join(keys)}); it was changed, or "
        "another publisher made it"
    )


def _load(private_pem: bytes, where: str) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(private_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: has a password
        raise ReleaseError(f"{where} is not a private key without password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"{where} is a key of {type(key).__name__}, expected Ed25519")
    return key
