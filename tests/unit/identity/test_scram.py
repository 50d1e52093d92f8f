"""The server's half of SCRAM-SHA-256 against the example of RFC 7677 and against a client written here."""

import base64
import hashlib
import hmac

import pytest

from holdfast.identity.scram import Lookup, ScramExchange, derive, parse_verifier

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
USERS = {"user": derive(b"pencil", SALT, 4096), "a,b=c": derive(b"x", b"saltsalt", 1)}
LOOKUP = Lookup(USERS, b"seed")


def test_the_example_of_rfc_7677() -> None:
    exchange = ScramExchange(LOOKUP, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    answer = exchange.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.username == "user"


def client_final(first: bytes, server_first: bytes, password: bytes, header: bytes = b"n,,") -> bytes:
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c={base64.b64encode(header).decode()},r={fields['r']}".encode()
    message = first.split(b",", 2)[2] + b"," + server_first + b"," + bare
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


def test_a_name_with_comma_and_equals_sign_logs_in() -> None:
    exchange = ScramExchange(LOOKUP)
    first = b"n,,n=a=2Cb=3Dc,r=0123456789abcdef"
    exchange.final(client_final(first, exchange.first(first), b"x"))
    assert exchange.username == "a,b=c"


def test_a_wrong_password_fails() -> None:
    exchange = ScramExchange(LOOKUP)
    first = b"n,,n=user,r=0123456789abcdef"
    with pytest.raises(ValueError, match="proof is wrong"):
        exchange.final(client_final(first, exchange.first(first), b"pencils"))


def test_an_unknown_name_is_answered_like_a_known_one_and_always_the_same() -> None:
    first = b"n,,n=nobody,r=0123456789abcdef"
    salts = set()
    for _ in range(3):
        exchange = ScramExchange(LOOKUP)
        answer = exchange.first(first)
        salts.add(answer.split(b",")[1])
        assert int(answer.rpartition(b",i=")[2]) in {verifier.iterations for verifier in USERS.values()}
        with pytest.raises(ValueError, match="proof is wrong"):
            exchange.final(client_final(first, answer, b"pencil"))
    assert len(salts) == 1
    other = ScramExchange(LOOKUP).first(b"n,,n=somebody,r=0123456789abcdef")
    assert other.split(b",")[1] not in salts


def test_a_rare_cost_does_not_tell_that_its_user_exists() -> None:
    users = {"a": derive(b"x", b"salt", 4096), "b": derive(b"x", b"salt", 4096), "c": derive(b"x", b"salt", 9999)}
    lookup = Lookup(users, b"seed")
    made_up = [lookup.find(f"nobody{number}").iterations for number in range(300)]
    assert set(made_up) == {4096, 9999}
    assert 50 < made_up.count(9999) < 150


def test_a_proof_is_good_for_its_own_exchange_only() -> None:
    first = b"n,,n=user,r=0123456789abcdef"
    before = ScramExchange(LOOKUP)
    final = client_final(first, before.first(first), b"pencil")
    before.final(final)
    again = ScramExchange(LOOKUP)
    again.first(first)
    with pytest.raises(ValueError, match="nonce"):
        again.final(final)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=0123456789abcdef",
        b"n,,n=user,r=short",
        b"n,,n=us=er,r=0123456789abcdef",
        b"n,a=admin,n=user,r=0123456789abcdef",
        b"p=tls-unique,,n=user,r=0123456789abcdef",
        b"n,,m=ext,n=user,r=0123456789abcdef",
        b"n,,n=\xff,r=0123456789abcdef",
        b"n,,n=user,r=" + b"x" * 5000,
    ],
)
def test_a_first_message_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ScramExchange(LOOKUP).first(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"c=biws", b"c=biws,r=x,p=", b"p=AAAA", b"c=eSws,r=NONCE,p=AAAA", b"c=biws,r=NONCE,p=%%", b"\xff,p=AA"],
)
def test_a_final_message_that_cannot_be_right_is_refused(data: bytes) -> None:
    exchange = ScramExchange(LOOKUP)
    exchange.first(b"n,,n=user,r=0123456789abcdef")
    with pytest.raises(ValueError, match=r"."):
        exchange.final(data.replace(b"NONCE", exchange.nonce.encode()))


def test_a_proof_before_the_first_message_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a proof after"):
        ScramExchange(LOOKUP).final(b"c=biws,r=x,p=AAAA")


def test_a_verifier_survives_writing_and_reading() -> None:
    verifier = derive(b"pencil", SALT, 4096)
    assert parse_verifier(str(verifier)) == verifier
