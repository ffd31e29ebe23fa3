"""What can be wrong in the definition of a lookup, and how it prints itself."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.connectors.postgres.lookup import postgres_lookup
from headrace.connectors.redis.lookup import redis_lookup
from headrace.errors import DefinitionError
from headrace.operators.lookup.client import cache
from headrace.operators.lookup.lookup import lookup
from headrace.operators.lookup.requests import breaker
from headrace.secrets import secret

SCHEMA = {"id": pl.Int64(), "Name": pl.String(), "tags": pl.List(pl.String())}


async def person(key: Any) -> dict[str, Any]:
    return {}


def plain(key: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on": []}, "KEY_MISSING"),
        ({"on_failure": "shrug"}, "ON_FAILURE_UNKNOWN"),
        ({"order": "random"}, "ORDER_UNKNOWN"),
        ({"in_flight": 0}, "IN_FLIGHT_INVALID"),
        ({"in_flight": 1001}, "IN_FLIGHT_INVALID"),
        ({"in_flight": 1.5}, "IN_FLIGHT_INVALID"),
        ({"cache": "10 minutes"}, "CACHE_INVALID"),
        ({"breaker": 5}, "BREAKER_INVALID"),
        ({"retries": -1}, "RETRIES_INVALID"),
        ({"timeout": "0 seconds"}, "DURATION_NOT_POSITIVE"),
        ({"output": "tier"}, "SCHEMA_UNREADABLE"),
        ({"name": "per son"}, "NAME_INVALID"),
        ({"how": plain}, "LOOKUP_UNKNOWN"),
        ({"how": "redis://host"}, "LOOKUP_UNKNOWN"),
    ],
)
def test_a_definition_that_cannot_work_is_an_error(options: dict[str, Any], expected: str) -> None:
    given = {"name": "person", "how": person, "on": "id", "output": "tier INT", "on_failure": "null", **options}
    with pytest.raises(DefinitionError, match=expected):
        lookup(given.pop("name"), given.pop("how"), **given)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on": "who"}, "COLUMN_UNKNOWN"),
        ({"on": "tags"}, "KEY_TYPE"),
        ({"output": "name STRING"}, "COLUMN_EXISTS"),
        ({"output": "person_failure STRING"}, "COLUMN_EXISTS"),
        ({"how": postgres_lookup("host=db", "select 1")}, "QUERY_PARAMETERS"),
        ({"how": postgres_lookup("host=db", "select %s, %s")}, "QUERY_PARAMETERS"),
        ({"how": redis_lookup("redis://host", key="u:{Name}")}, "TEMPLATE_COLUMN"),
    ],
)
def test_a_definition_that_does_not_fit_the_rows_is_an_error(options: dict[str, Any], expected: str) -> None:
    given = {"how": person, "on": "id", "output": "tier INT", "on_failure": "null", **options}
    step = lookup("person", given.pop("how"), **given)
    with pytest.raises(DefinitionError, match=expected):
        step.bind(SCHEMA, None)


def test_a_lookup_prints_itself_as_the_code_that_makes_it() -> None:
    step = lookup(
        "person", person, on=["id", "shop"], output="tier INT", on_failure="stop", in_flight=5, timeout="1 second",
        retries=0, breaker=breaker(after=3), cache=cache(ttl="1 hour"), order="free",
    )  # fmt: skip
    assert repr(step) == (
        "hr.lookup('person', person, on=['id', 'shop'], output='tier INT', in_flight=5, timeout='1 second', retries=0, "
        "breaker=hr.breaker(after=3, pause='10 seconds'), cache=hr.cache(ttl='1 hour', size=100000), order='free', "
        "on_failure='stop')"
    )


def test_explain_says_how_long_answers_are_kept_and_how_long_a_batch_may_wait() -> None:
    step = lookup("person", person, on="id", output="tier INT", on_failure="null", cache=cache(ttl="1 hour"))
    assert step.state_description == (
        "none; each worker caches answers as hr.cache(ttl='1 hour', size=100000); answers are stored until their batch "
        "is done, so that it has the same rows when it runs again; a task waits at most 6 seconds x ceil(its distinct "
        "keys / 100) + 2 seconds"
    )


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in repr(postgres_lookup("postgresql://ann:hunter2@db/shop", "select 1"))
    assert "hunter2" not in repr(postgres_lookup("host=db", "select 1", password="hunter2"))
    assert "hunter2" not in repr(redis_lookup("redis://:hunter2@host", key="u:{id}"))
    hidden = redis_lookup("redis://host", key="u:{id}", value="json", password=secret(env="REDIS"))
    assert repr(hidden) == (
        "hr.redis_lookup('redis://host', key='u:{id}', value='json', password=hr.secret(env='REDIS'))"
    )


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: redis_lookup("host:6379", key="u:{id}"), "REDIS_URL"),
        (lambda: redis_lookup("redis://host", key="u"), "TEMPLATE_INVALID"),
        (lambda: redis_lookup("redis://host", key="u:{id}", value="list"), "VALUE_UNKNOWN"),  # type: ignore[arg-type]
        (lambda: postgres_lookup("db:5432", "select 1"), "DSN_INVALID"),
    ],
)
def test_a_service_that_cannot_be_found_is_an_error(make: Any, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        make()
