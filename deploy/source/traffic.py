"""A small shop at work: changes rows of the database `shop` a few times a second, until it is ended.

    SOURCE_URL=mysql://shop:shop@localhost:3306/shop python traffic.py

Orders are placed, paid and sent, customers come and move, and old rows are deleted: each table stays small,
however long this runs.
"""

from __future__ import annotations

import os
import random
import time
from urllib.parse import urlsplit

import pymysql

SECONDS = 0.25
"""Between two transactions."""
KEPT = 500
"""Orders, and customers: older ones are deleted."""
NAMES = ("Ada", "Bela", "Chiara", "Dmitri", "Elif", "Femi", "Grace", "Hiro", "Inês", "Jürgen")


def main() -> None:
    """Returns never; a lost connection is made anew."""
    url = urlsplit(os.environ.get("SOURCE_URL", "mysql://shop:shop@localhost:3306/shop"))
    while True:
        try:
            connection = pymysql.connect(
                host=url.hostname or "localhost",
                port=url.port or 3306,
                user=url.username,
                password=url.password or "",
                database=url.path.strip("/"),
                charset="utf8mb4",
            )
            with connection:
                work(connection)
        except pymysql.err.OperationalError as error:
            print(f"traffic: {error}", flush=True)  # noqa: T201 - its log
            time.sleep(1)


def work(connection: pymysql.Connection[pymysql.cursors.Cursor]) -> None:
    """One transaction after the other. Raises OperationalError when the server is away."""
    while True:
        with connection.cursor() as cursor:
            one_change(cursor)
        connection.commit()
        time.sleep(SECONDS)


def one_change(cursor: pymysql.cursors.Cursor) -> None:
    """What happens in one transaction: of one kind, up to three rows."""
    kind = random.random()
    if kind < 0.15:
        name = random.choice(NAMES)
        cursor.execute(
            "INSERT INTO customers (name, email) VALUES (%s, %s)",
            (name, f"{name.lower()}{random.randrange(10_000)}@example.com"),
        )
        cursor.execute("DELETE FROM customers WHERE id <= %s", (cursor.lastrowid - KEPT,))
    elif kind < 0.25:
        email = f"moved{random.randrange(10_000)}@example.com"
        cursor.execute("UPDATE customers SET email = %s ORDER BY RAND() LIMIT 1", (email,))
    elif kind < 0.6:
        cursor.execute("SELECT article, price FROM stock ORDER BY RAND() LIMIT 1")
        article, price = cursor.fetchone()
        quantity = random.randint(1, 5)
        cursor.execute(
            "INSERT INTO orders (customer_id, article, quantity, price) VALUES (%s, %s, %s, %s)",
            (random.randint(1, KEPT), article, quantity, price * quantity),
        )
        cursor.execute("DELETE FROM orders WHERE id <= %s", (cursor.lastrowid - KEPT,))
        cursor.execute(
            "UPDATE stock SET quantity = IF(quantity > %s, quantity - %s, 1000) WHERE article = %s",
            (quantity, quantity, article),
        )
    else:
        cursor.execute("UPDATE orders SET status = status + 1 WHERE status < 3 ORDER BY RAND() LIMIT 2")


if __name__ == "__main__":
    main()
