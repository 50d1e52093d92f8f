"""Signing in with a key. The seed and its public key are the published example of the NATS documentation."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from holdfast.cluster.connection import version_of
from holdfast.cluster.nkeys import Signer
from holdfast.errors import ConfigError

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def check(answer: dict[str, str], nonce: bytes) -> None:
    raw = base64.b32decode(PUBLIC)
    signature = base64.urlsafe_b64decode(answer["sig"] + "==")
    Ed25519PublicKey.from_public_bytes(raw[1:33]).verify(signature, nonce)


def test_a_seed_signs_what_the_server_asks(tmp_path: Path) -> None:
    (tmp_path / "seed").write_text(SEED + "\n")
    answer = Signer(None, tmp_path / "seed").answer("nonce")
    assert answer["nkey"] == PUBLIC
    check(answer, b"nonce")


def test_a_credentials_file_gives_token_and_signature(tmp_path: Path) -> None:
    (tmp_path / "node.creds").write_text(
        "-----BEGIN NATS USER JWT-----\neyJ0.abc.def\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    answer = Signer(tmp_path / "node.creds", None).answer("nonce")
    assert answer["jwt"] == "eyJ0.abc.def"
    check(answer, b"nonce")


def test_without_a_file_there_is_nothing_to_answer() -> None:
    assert Signer(None, None).answer("nonce") == {}


@pytest.mark.parametrize("text", ["", "SUAC", SEED.replace("DXKF", "DXKG"), PUBLIC, "not base32!"])
def test_what_is_no_seed_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "seed").write_text(text)
    with pytest.raises(ConfigError, match="expected the seed of a NATS user"):
        Signer(None, tmp_path / "seed")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Signer(None, tmp_path / "seed")
    (tmp_path / "empty.creds").write_text("")
    with pytest.raises(ConfigError, match="expected a NATS credentials file"):
        Signer(tmp_path / "empty.creds", None)


@pytest.mark.parametrize(
    ("older", "newer"),
    [("2.9.10", "2.12.6"), ("2.12.5", "2.12.6"), ("2.12.6", "2.15.1"), ("2.12.15", "2.13.0"), ("?", "0.0.1")],
)
def test_versions_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert version_of(older) < version_of(newer)
    assert version_of(f"{newer}-RC.1") == version_of(newer)
