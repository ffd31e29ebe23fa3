"""A shop whose orders, customers and payments change at random: with nulls, large text, new keys and rollbacks."""

from __future__ import annotations

import random
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, UniqueViolation

TABLES = """
create table customers (customer_id int primary key, name text, city text, about text);
create table orders (order_id int primary key, customer_id int, amount numeric(12, 2), note text);
create table payments (payment_id int primary key, order_id int, paid numeric(12, 2), method text, receipt text);
alter table orders replica identity full;
insert into customers select g, 'name ' || g, null, repeat(md5(g::text), 200) from generate_series(1, 20) g;
insert into orders select g, g % 30, g, null from generate_series(1, 100) g;
insert into payments select g, g % 120, g, null, 'first' from generate_series(1, 100) g;
"""
"""Orders log whole rows when they change; the others log their keys, and no large value that stays as it was."""
VIEW = """
select o.order_id, coalesce(p.payment_id, 0), o.customer_id, o.amount, o.note, p.paid, p.method, p.receipt,
       c.name, c.city, c.about
from orders o left join payments p using (order_id) left join customers c on c.customer_id = o.customer_id
"""
LAST = 1_000_000
"""The key of the rows that are put in at the end."""
_KEYS = {"customers": ("customer_id", 60), "orders": ("order_id", 500), "payments": ("payment_id", 700)}
_LARGE = {"customers": "about", "orders": "note", "payments": "receipt"}


class Shop:
    """One client of the database; several trade beside each other, and get into each other's way."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._chance = random.Random(seed)

    def trade(self, changes: int) -> None:
        """Commit exactly so many changes, some in each transaction."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while changes:
                changes -= self._transaction(connection, at_most=min(changes, self._chance.randint(1, 8)))

    def _transaction(self, connection: psycopg.Connection[Any], *, at_most: int) -> int:
        rolled_back = self._chance.random() < 0.1
        try:
            with connection.transaction(force_rollback=rolled_back):
                done = sum(self._change(connection) for _ in range(at_most))
        except (DeadlockDetected, UniqueViolation):
            return 0
        return 0 if rolled_back else done

    def _change(self, connection: psycopg.Connection[Any]) -> int:
        """Try one change; how many rows it changed: one, or none where the row is not there, or is already."""
        table = self._chance.choices(list(_KEYS), weights=(1, 3, 3))[0]
        key, keys = _KEYS[table]
        chosen, other = self._chance.randint(1, keys), self._chance.randint(1, keys)
        small, large = self._small(table), self._large(table)
        match self._chance.choice(("insert", "insert", "small", "small", "large", "delete", "move")):
            case "insert":
                row = {key: chosen, **small, **large}
                names, places = ", ".join(row), ", ".join(["%s"] * len(row))
                query, values = f"insert into {table} ({names}) values ({places}) on conflict do nothing", row
            case "small":
                query, values = f"update {table} set {_set(small)} where {key} = {chosen}", small
            case "large":
                query, values = f"update {table} set {_set(large)} where {key} = {chosen}", large
            case "delete":
                query, values = f"delete from {table} where {key} = {chosen}", {}
            case _:
                # Where only keys are logged, a large value is not sent with the row's new key.
                values = {key: other, **(small if table == "orders" else large)}
                free = f"not exists (select from {table} where {key} = {other})"
                query = f"update {table} set {_set(values)} where {key} = {chosen} and {free}"
        return connection.execute(query, list(values.values())).rowcount

    def _small(self, table: str) -> dict[str, object]:
        chance = self._chance
        amount = None if chance.random() < 0.1 else chance.randint(-(10**6), 10**6) / 100
        match table:
            case "customers":
                return {
                    "name": f"name {chance.randint(1, 99)}",
                    "city": chance.choice((None, "", "Köln", "漢字 \\ \n")),
                }
            case "orders":
                buyer = None if chance.random() < 0.1 else chance.randint(1, _KEYS["customers"][1])
                return {"customer_id": buyer, "amount": amount}
            case _:
                paid_for = None if chance.random() < 0.1 else chance.randint(1, _KEYS["orders"][1])
                return {"order_id": paid_for, "paid": amount, "method": chance.choice((None, "card", "cash"))}

    def _large(self, table: str) -> dict[str, object]:
        """Nothing, a few words, or text so large that it is stored apart: at random, so that it cannot be pressed."""
        text = self._chance.choice((None, "short", self._chance.randbytes(2_000).hex()))
        return {_LARGE[table]: text}


def close(connection: psycopg.Connection[Any]) -> None:
    """Put a last row into each table, all three in one transaction."""
    with connection.transaction():
        connection.execute("insert into customers values (%s, 'last', null, null)", [LAST])
        connection.execute("insert into orders values (%s, %s, 0, null)", [LAST, LAST])
        connection.execute("insert into payments values (%s, %s, 0, null, null)", [LAST, LAST])


def _set(values: dict[str, object]) -> str:
    return ", ".join(f"{name} = %s" for name in values)
