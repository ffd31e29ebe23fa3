"""Redaction: no text that leaves has a secret in it, in whatever form somebody repeats it."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
import traceback
from urllib.parse import quote, quote_plus

import httpx
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import redaction
from headrace.checkpoint.outages import OutageMarker, outages
from headrace.checkpoint.storage import MemoryStorage
from headrace.errors import HeadraceError
from headrace.operators.lookup.service import LookupFailure, json_object
from headrace.redaction import (
    beginning,
    is_torn,
    learn,
    learn_address,
    redacted,
    redacted_error,
    redacting,
    secrets_pattern,
    without_password,
)
from headrace.wheel.side_rows import dead_letters

CANARY = 'c4n4ry/hun"ter+2 é'


@pytest.mark.parametrize(
    "form",
    [
        CANARY,
        quote(CANARY),
        quote(CANARY, safe=""),
        quote_plus(CANARY).lower(),
        html.escape(CANARY),
        json.dumps(CANARY),
        repr(CANARY.encode()),
        base64.b64encode(f"ann:{CANARY}".encode()).decode(),
        base64.b64encode(f"bo:{CANARY}!".encode()).decode(),
        base64.urlsafe_b64encode(f"\0eve\0{CANARY}".encode()).decode(),
    ],
)
def test_a_secret_is_hidden_in_every_form_in_which_a_receiver_may_repeat_it(form: str) -> None:
    learn(CANARY)
    shown = redacted(f"401 [{form}] is wrong")
    assert shown.startswith("401 [")
    assert shown.endswith("] is wrong")
    # At most what stands before it in base 64 is left.
    assert re.fullmatch(r"401 \[[\"'b]*[A-Za-z0-9]{0,6}\*\*\*[\"']*\] is wrong", shown)


def is_searched(secret: str) -> bool:
    return len(secret.strip()) >= redaction.SHORTEST


@given(
    st.text(st.characters(codec="utf-8"), min_size=4, max_size=12).filter(is_searched),
    st.binary(max_size=4),
    st.binary(max_size=4),
)
def test_base_64_of_a_secret_is_hidden_wherever_it_stands_in_what_is_encoded(
    secret: str, before: bytes, after: bytes
) -> None:
    text = base64.b64encode(before + secret.encode() + after).decode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_known", redaction.Known())
        learn(secret)
        shown = redacted(f"Basic {text}").removeprefix("Basic ")
    kept = shown.partition("***")[0]
    assert "***" in shown
    # What is left encodes nothing but what stands before the secret.
    assert len(kept) <= (8 * len(before) + 5) // 6


# Python and Polars disagree about which of all the characters are part of a word.
CHARACTERS = st.characters(codec="ascii") | st.sampled_from("éß漢€")


@given(
    st.sets(st.text(CHARACTERS, min_size=4, max_size=9).filter(is_searched), min_size=1, max_size=2),
    st.lists(st.text(CHARACTERS), max_size=5),
)
def test_polars_hides_in_a_column_what_python_hides_in_a_text(secrets: set[str], texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_known", redaction.Known())
        for secret in secrets:
            learn(secret)
        pattern = secrets_pattern()
    column = pl.Series([*texts, *secrets, *(f"a {secret} b{secret}" for secret in secrets), None])
    assert pattern is not None
    assert column.str.replace_all(pattern, "***").to_list() == [
        None if text is None else re.sub(pattern, "***", text) for text in column
    ]


def test_the_lines_of_a_key_and_the_token_of_a_header_are_hidden_alone_too() -> None:
    learn("-----BEGIN KEY-----\nMIIBVQIBADAN\nBgkqhkiG9w0B\n-----END KEY-----")
    learn("Bearer t0ken-7f3a")
    assert redacted("line 2: BgkqhkiG9w0B; who is t0ken-7f3a?") == "line 2: ***; who is ***?"


def test_a_short_secret_is_hidden_where_it_stands_alone_and_a_shorter_one_is_not_looked_for() -> None:
    learn("shop")
    learn("abc")
    learn("  a   ")
    assert redacted("the shop of shopping is abc") == "the *** of shopping is abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at redis://:p/ss@cache:6379/0", "at redis://:***@cache:6379/0"),
        ("at redis://ann:p#s?s@cache", "at redis://ann:***@cache"),
        ("at postgresql://ann:p@ss@db/shop: no", "at postgresql://ann:***@db/shop: no"),
        ("at https://ann:hunter2@shop/in", "at https://ann:***@shop/in"),
        ("at http://shop:8080/users/@me", "at http://shop:8080/users/@me"),
        ("at http://shop/in?mail=a@b", "at http://shop/in?mail=a@b"),
        ("host=db password=hunter2 user=ann", "host=db password=*** user=ann"),
        (r"password='hun\'ter 2' sslpassword=x", "password=*** sslpassword=***"),
        ('hr.to_kafka("t", options={"sasl.password": "hunter2"})', 'hr.to_kafka("t", options={"sasl.password": ***})'),
        ('headers={"Authorization": "Bearer hunter2"}', 'headers={"Authorization": ***}'),
        ("password=hr.secret(env='SHOP_PASSWORD')", "password=hr.secret(env='SHOP_PASSWORD')"),
        ("Check user, password and headers.", "Check user, password and headers."),
        ("where(\"token = 'a' and cookie = 'b'\")", "where(\"token = 'a' and cookie = 'b'\")"),
    ],
)
def test_what_an_address_or_an_assignment_calls_a_password_is_hidden_though_nobody_knows_it(
    text: str, shown: str
) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["password", "a.b-", "x://", "Zm9v", "pass "])
def test_a_long_text_in_which_an_address_could_begin_anywhere_is_searched_in_a_second(text: str) -> None:
    learn("hunter-2")
    assert redacted(text * 100_000) == text * 100_000


def test_the_password_of_an_address_is_known_however_it_is_written() -> None:
    assert (
        learn_address("redis://:h%75nter-2@cache?password=other1%21") == "redis://:h%75nter-2@cache?password=other1%21"
    )
    assert redacted("hunter-2 h%75nter-2 other1!") == "*** *** ***"


@pytest.mark.parametrize("character", "/?#")
def test_a_password_that_ends_early_in_its_url_is_noticed_and_not_shown(character: str) -> None:
    url = f"redis://ann:hun{character}ter2@cache:6379/0"
    assert is_torn(url)
    assert without_password(url) == "redis://ann:***@cache:6379/0"
    assert not is_torn(url.replace(character, quote(character, safe="")))


@pytest.mark.parametrize("url", ["postgresql://db:5432/shop?user=ann@eu", "http://shop:80/@me", "redis://cache:6379/0"])
def test_a_port_is_not_taken_for_a_password(url: str) -> None:
    assert not is_torn(url, by="/?#@")


def test_a_text_that_is_cut_does_not_end_with_half_a_secret() -> None:
    learn("hunter-twenty-two")
    assert beginning(f"{'x' * 95} hunter-twenty-two", 100) == f"{'x' * 95} ***"


def test_every_error_is_redacted() -> None:
    learn("hunter-2")
    assert str(HeadraceError("SINK_REFUSED", "401 hunter-2")) == "[SINK_REFUSED] 401 ***"


def test_a_definition_error_shows_the_line_of_the_author_without_its_password() -> None:
    with pytest.raises(hr.DefinitionError) as raised:
        hr.to_postgres("spend", dsn="host=db", password="hunter2", writers=0)
    assert 'hr.to_postgres("spend", dsn="host=db", password=***, writers=0)' in str(raised.value)
    with pytest.raises(hr.DefinitionError) as raised:
        hr.to_redis("redis://:hun/ter2@cache:6379/0", key="spend:{account}")
    assert "url='redis://:***@cache:6379/0'" in str(raised.value)
    assert "ter2" not in str(raised.value)
    with pytest.raises(hr.DefinitionError) as raised:
        hr.to_postgres("spend", dsn="host=db password=hun ter2", upsert_on="id")
    assert 'hr.to_postgres("spend", dsn="***", upsert_on="id")' in str(raised.value)


def test_errors_of_others_pass_without_secrets_and_so_do_those_behind_them() -> None:
    learn("hunter-2")

    @redacting()
    def fails() -> None:
        try:
            raise httpx.LocalProtocolError("Illegal header value b'hunter-2\\n'")
        except httpx.HTTPError as problem:
            raise KeyError("hunter-2", 5) from problem

    with pytest.raises(KeyError) as raised:
        fails()
    assert str(raised.value.__cause__) == "Illegal header value b'***\\n'"
    said = "".join(traceback.format_exception(raised.value))
    assert "KeyError: \"('***', 5)\"" in said
    assert "hunter" not in "".join(line for line in said.splitlines() if "raise " not in line)


def test_an_error_whose_text_cannot_be_changed_is_replaced() -> None:
    learn("hunter-2")
    error = FileNotFoundError(2, "No such file", "/run/hunter-2")
    shown = redacted_error(error)
    assert type(shown) is RuntimeError
    assert str(shown) == "FileNotFoundError: [Errno 2] No such file: '/run/***'"
    harmless = ValueError("no secret", 7)
    assert redacted_error(harmless) is harmless
    assert harmless.args == ("no secret", 7)


def test_no_logger_says_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    learn("hunter-2")
    log = logging.getLogger("httpx")
    log.warning("%s %r", "GET http://shop?token=hunter-2", {"x": "hunter-2"})
    log.warning("%s", "password=unknown")
    try:
        raise ValueError("hunter-2")
    except ValueError:
        log.exception("failed")
    assert caplog.messages == ["GET http://shop?token=*** {'x': '***'}", "password=unknown", "failed"]
    assert "ValueError: ***" in caplog.text
    assert "hunter" not in caplog.text.replace('raise ValueError("hunter-2")', "")


def test_a_marker_of_an_outage_has_no_secret() -> None:
    learn("hunter-2")
    storage = MemoryStorage()
    OutageMarker(storage, "w", "http shop").begin("401 hunter-2")
    assert [outage.reason for outage in outages(storage)] == ["401 ***"]


def test_a_dead_letter_has_no_secret_in_its_detail_and_its_row_as_it_was() -> None:
    learn("hunter-2")
    dead = pl.DataFrame(
        {"position": [0], "reason": ["HTTP_422"], "detail": ["no hunter-2"], "raw": [b'{"n":"hunter-2"}']}
    )
    [letter] = dead_letters(dead, source="s", origin="http shop", batch=1, clock=0).to_dicts()
    assert (letter["detail"], letter["raw"]) == ("no ***", b'{"n":"hunter-2"}')


def test_what_a_service_answers_to_a_lookup_is_redacted_before_it_is_cut() -> None:
    learn("hunter-twenty-two")
    assert "hunter" not in str(LookupFailure("HTTP_400", f"{'x' * 490} hunter-twenty-two"))
    with pytest.raises(LookupFailure) as raised:
        json_object(b"x" * 90 + b" hunter-twenty-two")
    assert "hunter" not in str(raised.value)
