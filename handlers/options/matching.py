"""Patterns that select the tables of a rule and the topics to read, and spellings of names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

_WILDCARDS = frozenset("*?[")
_LONGEST = 2 * 512 + 1
"""Characters of the longest `database.table` that the worker accepts."""


class PatternError(ValueError):
    """The pattern cannot be used. `allowed` describes valid patterns; `nearest` is the likely intention."""

    def __init__(self, allowed: str, nearest: str | None = None) -> None:
        super().__init__(allowed)
        self.allowed = allowed
        self.nearest = nearest


def lowered(name: str) -> str:
    """Return a name in lower case, as the server compares it.

    >>> lowered("KİMLİK"), "KİMLİK".lower() == "kimlik"
    ('kimlik', False)
    """
    return name.replace("İ", "i").lower()


def folded(name: str) -> str:
    """Return a name in a form that is the same for all its spellings."""
    return lowered(name).casefold()


def folded_all(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(folded, names))


@lru_cache(maxsize=10_000)
def table_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test for `database.table`.

    A glob (`shop.*`, `shop.order_?`, `shop_[0-9].orders`) must match the whole name. Its `*` also matches
    dots. `/.../` is a regular expression of Python's `re` and must match the whole name as well. Both
    distinguish upper and lower case, as MySQL does on Linux.

    Raises PatternError: an empty pattern, a broken regular expression, or a glob that no table can match."""
    if pattern.startswith("/"):
        if len(pattern) < 3 or not pattern.endswith("/"):
            raise PatternError("a regular expression must be between two slashes", f"{pattern.rstrip('/')}/")
        expression = _compiled(pattern[1:-1])
        return lambda table: len(table) <= _LONGEST and expression.fullmatch(table) is not None
    if not pattern:
        raise PatternError("a glob on database.table such as shop.*, or /regular expression/")
    if "." not in pattern and not _WILDCARDS & set(pattern):
        raise PatternError("a glob on database.table, with both names", f"*.{pattern}")
    if not _WILDCARDS & set(pattern):
        return lambda table: table == pattern
    glob = re.compile(fnmatch.translate(pattern))
    return lambda table: glob.match(table) is not None


def topic_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test for topic names. The pattern is a name, or a regular expression that begins with `^`.

    The expression is matched at the beginning of the name, as in librdkafka. End it with `$` to match the
    whole name.

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
    """Return a test whether any pattern matches a topic's name (see `topic_matcher`)."""
    matchers = [topic_matcher(pattern) for pattern in patterns]
    return lambda topic: any(matches(topic) for matches in matchers)


def nests_repetitions(pattern: str) -> bool:
    r"""Whether the pattern is a regular expression with a repetition of a repetition, such as `(a+)+`.

    Such an expression may need exponential time for a name that it does not match.

    >>> [nests_repetitions(each) for each in (r"/(a+)+/", r"/((a|b)*c?){2,}/", r"/(\d{4}_)+x*/", "/[(a+)+]/")]
    [True, True, False, False]
    """
    if not pattern.startswith("/"):
        return False
    repeats = [False]  # for each open group, the outermost first: whether it contains a repetition
    closed = False  # whether a group with one has just ended
    for token in _EXPRESSION_TOKENS.findall(pattern[1:-1]):
        if token == "(":
            repeats.append(False)
        elif token == ")" and len(repeats) > 1:
            closed = repeats.pop()
            repeats[-1] |= closed
            continue
        elif token[0] in "*+{":
            if closed:
                return True
            # {4} always takes the same number of characters.
            repeats[-1] |= token[0] != "{" or "," in token
        closed = False
    return False


_EXPRESSION_TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
"""A piece of a regular expression: an escaped character, a set, a number of repetitions, or one character."""


def is_name(pattern: str) -> bool:
    """Whether the pattern is the name of one table, not a glob or a regular expression."""
    return not pattern.startswith("/") and not _WILDCARDS & set(pattern)


def may_end(pattern: str, name: str) -> bool:
    r"""Whether a table of this name in some database may match. True if that cannot be decided.

    >>> may_end("s?a", "a"), may_end(r"/(crm|s)\.(a|b)/", "a"), may_end(r"/(crm\.b|s\.c)/", "a")
    (True, True, True)
    >>> may_end("*_a", "a"), may_end("a.*b", "a"), may_end(r"/crm\.(b|c)/", "a")
    (False, False, False)
    """
    if not pattern.startswith("/"):
        # Where the point of the name may be: `*` may also have a part of the table.
        ends = (pattern[at + (one != "*") :] for at, one in enumerate(pattern) if one in ".?]*")
        return any(fnmatch.fnmatchcase(name, end) for end in ends)
    expression = pattern[1:-1]
    parts = expression.split(r"\.")
    if len(parts) == 1 and expression.startswith((".*", ".+")):
        parts = ["", f".*{expression[2:]}"]
    if len(parts) != 2 or any("|" in re.sub(r"\([^()]*\)", "", part) for part in parts):
        return True
    try:
        return [re.compile(part).fullmatch(name) for part in parts][1] is not None
    except re.error:
        return True


def covers(wide: str, narrow: str) -> bool:
    """Whether the pattern `wide` certainly matches every table that `narrow` matches.

    Also False if that cannot be decided, as for most regular expressions, and globs with `?` or sets."""
    if is_name(narrow):
        return table_matcher(wide)(narrow)
    if wide == narrow or wide in ("*", "/.*/"):
        return True
    if set("?[") & set(wide) or "/" in (wide[:1], narrow[:1]):
        return False
    return fnmatch.fnmatchcase(narrow, wide)  # only a `*` of `wide` matches wildcards of `narrow`


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise PatternError(f"a regular expression ({error})") from None
