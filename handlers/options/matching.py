"""Patterns: which tables a rule takes, and which topics are read."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

_WILDCARDS = frozenset("*?[")


class PatternError(ValueError):
    """The pattern can never be used. `allowed` says what can; `nearest` is the likely intention."""

    def __init__(self, allowed: str, nearest: str | None = None) -> None:
        super().__init__(allowed)
        self.allowed = allowed
        self.nearest = nearest


def table_matcher(pattern: str) -> Callable[[str], bool]:
    """A test for `database.table`.

    A glob (`shop.*`, `shop.order_?`, `shop_[0-9].orders`) takes the whole name; its `*` matches dots too.
    `/.../` is a regular expression of Python's `re` that takes the whole name. Both tell upper from lower
    case: MySQL does on Linux, and the names come from there.

    Raises PatternError: an empty pattern, a broken regular expression, or a glob that no table can match."""
    if pattern.startswith("/"):
        if len(pattern) < 3 or not pattern.endswith("/"):
            raise PatternError("a regular expression stands between two slashes", f"{pattern.rstrip('/')}/")
        expression = _compiled(pattern[1:-1])
        return lambda table: expression.fullmatch(table) is not None
    if not pattern:
        raise PatternError("a glob on database.table such as shop.*, or /regular expression/")
    if "." not in pattern and not _WILDCARDS & set(pattern):
        raise PatternError("a glob on database.table, with both names", f"*.{pattern}")
    if not _WILDCARDS & set(pattern):
        return lambda table: table == pattern
    glob = re.compile(fnmatch.translate(pattern))
    return lambda table: glob.match(table) is not None


def topic_matcher(pattern: str) -> Callable[[str], bool]:
    """A test for topic names: a name, or a regular expression that begins with `^`.

    The expression is searched for from the beginning of the name, as librdkafka does; end it with `$` to take
    the whole name.

    Raises PatternError: an empty pattern, a broken regular expression, or a name that Kafka does not allow.
    """
    if pattern.startswith("^"):
        expression = _compiled(pattern)
        return lambda topic: expression.search(topic) is not None
    # Kafka's own rule: org.apache.kafka.common.internals.Topic.
    if re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", pattern) is None or pattern in {".", ".."}:
        looks_like_expression = any(letter in pattern for letter in "*+?[(|\\$")
        raise PatternError(
            "a topic name (letters, digits, '.', '_', '-'), or a regular expression that begins with ^",
            f"^{pattern}" if looks_like_expression else None,
        )
    return lambda topic: topic == pattern


def topics_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """A test whether any of these takes a topic's name (see `topic_matcher`)."""
    matchers = [topic_matcher(pattern) for pattern in patterns]
    return lambda topic: any(matches(topic) for matches in matchers)


def is_name(pattern: str) -> bool:
    """Whether it is one table's name: neither a glob nor a regular expression."""
    return not pattern.startswith("/") and not _WILDCARDS & set(pattern)


def database_of(pattern: str) -> str | None:
    r"""A database of which the pattern may take tables; None: that cannot be told.

    >>> database_of("crm_[0-9].*"), database_of(r"/(crm|shop)_\d{2,4}\.(people|users)/"), database_of("/a|b/")
    ('crm_0', 'crm_00', None)
    """
    if not pattern.startswith("/"):
        # Of wildcards the glob itself is one: each stands for its own character, too. Of [0-9] it is 0.
        return re.sub(r"\[(.)[^]]*\]", r"\1", pattern.partition(".")[0])
    found = pattern[1:-1].removeprefix("^").partition(r"\.")[0]
    for one, example in _EXAMPLES:
        found = re.sub(one, example, found)
    return found if re.fullmatch(r"[\w-]+", found) else None


_EXAMPLES: Sequence[tuple[str, str | Callable[[re.Match[str]], str]]] = (
    (r"\(\?[^:][^)]*\)", ""),
    (r"\\d", "0"),
    (r"\[\^[^]]*\]|\\w|\.", "a"),
    (r"\[(\w)[^]]*\]", r"\1"),
    (r"(\w)\{(\d{1,2})\b[^}]*\}", lambda found: found[1] * int(found[2])),
    (r"\((?:\?:)?([^|()]*)[^()]*\)", r"\1"),
    (r"[*+?]", ""),
)
"""Of a regular expression: (what usual parts look like, a text that they take)."""


def covers(wide: str, narrow: str) -> bool:
    """Whether every table that the pattern `narrow` takes is surely taken by `wide`, too.

    False also where that cannot be told, as of most regular expressions.
    """
    if is_name(narrow):
        return table_matcher(wide)(narrow)
    if wide == narrow or wide in ("*", "/.*/"):
        return True
    if wide.startswith("/") or narrow.startswith("/"):
        return False
    return _takes(_TOKENS.findall(wide), _TOKENS.findall(narrow))


_TOKENS = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
"""Of a glob: one character, a wildcard, or a set of characters."""


def _takes(wide: list[str], narrow: list[str]) -> bool:
    """Whether the first glob takes whatever the second does, piece by piece."""
    # reached[n]: the pieces of `wide` so far take the first n of `narrow`.
    reached = [True, *[False] * len(narrow)]
    for piece in wide:
        if piece == "*":
            for at in range(len(narrow)):
                reached[at + 1] = reached[at + 1] or reached[at]
        else:
            one = [_takes_one(piece, each) for each in narrow]
            reached = [False, *(was and fits for was, fits in zip(reached, one, strict=False))]
    return reached[-1]


def _takes_one(wide: str, narrow: str) -> bool:
    """Of two pieces that stand for one character each, unless `narrow` is `*`."""
    if narrow == "*":
        return False
    return wide in ("?", narrow) or (len(narrow) == 1 and narrow != "?" and fnmatch.fnmatchcase(narrow, wide))


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise PatternError(f"a regular expression ({error})") from None
