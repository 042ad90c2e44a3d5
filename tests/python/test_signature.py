"""Signatures of an index; the vectors are those of RFC 8032, section 7.1."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotbuild.errors import ReleaseError, TrustError
from aotbuild.signature import create_key, public_key, sign, verify

# Secret key, public key, message, the signature's two halves: TEST 1, 2 and 3.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155",
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da",
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac",
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
PUBLIC = [vector[1] for vector in VECTORS]
DATA, SIGNATURE = bytes.fromhex(VECTORS[1][2]), "".join(VECTORS[1][3:]) + "\n"


def pem(secret: str) -> bytes:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        SIGNATURE.upper(),
        SIGNATURE[:-3],
        SIGNATURE.strip() + "00\n",
        " " + SIGNATURE,
        SIGNATURE + "\n",
        SIGNATURE + "# a remark\n",
        "<html>404</html>",
        "0x" + SIGNATURE[2:],
    ],
)
def test_a_malformed_signature(text: str) -> None:
    with pytest.raises(TrustError, match="an index: its signature file is malformed"):
        verify(DATA, text, PUBLIC, "an index")


def test_no_key() -> None:
    with pytest.raises(TrustError, match="no key is known"):
        verify(DATA, SIGNATURE, [], "an index")


@pytest.mark.parametrize("key", ["", "ab", PUBLIC[1].upper(), PUBLIC[1] + "00", "g" * 64])
def test_a_malformed_key(key: str) -> None:
    with pytest.raises(TrustError, match="64 digits"):
        verify(DATA, SIGNATURE, [PUBLIC[1], key], "an index")


@pytest.mark.parametrize("data", [DATA + b"\n", b"", b"\x73"])
def test_changed_data(data: bytes) -> None:
    with pytest.raises(TrustError, match="an index: signed by none of the trusted keys") as caught:
        verify(data, SIGNATURE, PUBLIC, "an index")
    assert all(key in str(caught.value) for key in PUBLIC)


def test_another_key() -> None:
    with pytest.raises(TrustError, match="none of the trusted keys"):
        verify(DATA, SIGNATURE, [PUBLIC[0], PUBLIC[2]], "an index")


def test_every_bit_counts() -> None:
    raw = bytes.fromhex(SIGNATURE)
    for bit in range(0, 512, 7):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TrustError, match="none of"):
            verify(DATA, changed.hex() + "\n", [PUBLIC[1]], "an index")


@pytest.mark.parametrize("text", [b"", b"hello", pem(VECTORS[0][0])[:60]])
def test_no_private_key(text: bytes) -> None:
    with pytest.raises(ReleaseError, match=r"k\.pem is not a private key"):
        sign(DATA, text, "k.pem")


def test_private_keys_of_other_kinds() -> None:
    locked = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ReleaseError, match=r"k\.pem is not a private key without password"):
        sign(DATA, locked, "k.pem")
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(ReleaseError, match=r"k\.pem is a key of .*, expected Ed25519"):
        sign(DATA, other, "k.pem")


@pytest.mark.parametrize(("secret", "public", "message", "r", "s"), VECTORS)
def test_vectors(secret: str, public: str, message: str, r: str, s: str) -> None:
    data = bytes.fromhex(message)
    assert public_key(pem(secret)) == public
    assert sign(data, pem(secret)) == f"{r}{s}\n"
    assert verify(data, f"{r}{s}\n", PUBLIC, "data") == public


def test_one_good_signature_of_several_is_enough() -> None:
    """So that an index can be signed by the key that leaves and by the key that comes."""
    private, public = create_key()
    both = sign(DATA, private) + SIGNATURE
    assert verify(DATA, both, [PUBLIC[1]], "data") == PUBLIC[1]
    assert verify(DATA, both, [public], "data") == public
    with pytest.raises(TrustError):
        verify(DATA, both, [PUBLIC[0]], "data")


def test_keys_differ() -> None:
    (first, public), (second, other) = create_key(), create_key()
    assert public != other
    assert first != second
    assert public_key(first) == public


def test_cryptography_is_loaded_when_needed() -> None:
    code = "import sys, aotbuild.signature; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
