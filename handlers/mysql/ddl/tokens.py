"""A statement as a sequence of tokens, with the methods of a parser. The tokens are sqlglot's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import sqlglot
from sqlglot import Token, TokenType

# By its class: if threads look a dialect up by name at once, one may get a half-initialized dialect.
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

from handlers.mysql.ddl import StatementError

# Quoted text, or a comment. The server runs the contents of executable ones: `/*!50503 … */`, `/*M! … */`.
# Each alternative matches in only one way, up to its end or the statement's, so there is no backtracking.
_EXECUTABLE = re.compile(
    r"""(?P<text>'(?:[^'\\]++|\\.)*+'?|"(?:[^"\\]++|\\.)*+"?|`[^`]*+`?)
    |/\*M?!\d*+(?P<run>.*?)(?:(?P<closed>\*/)|\Z)
    |/\*.*?(?:\*/|\Z)|(?:\#|--)[^\n]*+""",
    re.DOTALL | re.VERBOSE,
)
_WHITE = re.compile(r"[^\S\x00-\x7f]")
"""To the server such characters are part of a name; to sqlglot they are white space."""
_MOST_CHARACTERS = 256 << 10
"""Most characters of a statement without quoted texts and comments. Each may become a token, and a thousand
tokens temporarily take a MiB."""
_MOST_DEPTH = 64
"""Most levels of nested brackets."""
# Precedes the statement. Otherwise sqlglot may read the first word as a command, and not split the rest.
_PREFIX = ", "


class Kind(Enum):
    WORD = "word"
    """A keyword, a name without backticks, or a sign."""
    NAME = "name"
    """A name in backticks."""
    TEXT = "text"
    NUMBER = "number"
    BITS = "bits"
    BYTES = "bytes"


class Piece(NamedTuple):
    kind: Kind
    text: str
    """The text without quotes and escapes; a word in upper case."""
    start: int
    end: int
    """`start` and `end` are the position in the statement."""


_KINDS = {
    TokenType.IDENTIFIER: Kind.NAME,
    TokenType.STRING: Kind.TEXT,
    TokenType.NATIONAL_STRING: Kind.TEXT,
    TokenType.NUMBER: Kind.NUMBER,
    TokenType.BIT_STRING: Kind.BITS,
    TokenType.HEX_STRING: Kind.BYTES,
}


def tokens_of(sql: str) -> Tokens:
    """Split the first statement of the text into tokens, without the variables of SET STATEMENT.

    Raises StatementError if the text is not SQL (for example, an unclosed quote), or if the statement is too
    long or nested too deeply."""
    text = _PREFIX + _without_frames(sql)
    try:
        found = sqlglot.tokenize(text, read=MySQL)
    except SqlglotError as error:
        raise StatementError(f"not readable as SQL ({error})") from error
    pieces: list[Piece] = []
    depth = 0
    for piece in _pieces(text, found[1:]):
        if piece.kind is Kind.WORD:
            if piece.text == ";":
                break
            depth += {"(": 1, ")": -1}.get(piece.text, 0)
            if depth > _MOST_DEPTH:
                raise StatementError(f"more than {_MOST_DEPTH} nested brackets")
        pieces.append(piece)
    tokens = Tokens(text, pieces)
    if tokens.take("SET", "STATEMENT"):  # MariaDB: variables for the statement after FOR
        while not tokens.at_end and not tokens.take("FOR"):
            tokens.skip()
    return tokens


def _without_frames(sql: str) -> str:
    """Replace executable comments by their contents. Raises StatementError if the statement is too long or
    has white space beyond ASCII."""
    passed = 0

    def opened(found: re.Match[str]) -> str:
        nonlocal passed
        if found["closed"]:
            return f" {found['run']} "
        passed += len(found[0]) - 1
        return found[0]

    text = _EXECUTABLE.sub(opened, sql)
    if _WHITE.search(_EXECUTABLE.sub("", text)):
        raise StatementError("white space beyond ASCII in a name without quotes")
    if len(text) - passed > _MOST_CHARACTERS:
        raise StatementError(f"{len(text) - passed} characters, but at most {_MOST_CHARACTERS} are allowed")
    return text


def _pieces(sql: str, tokens: Iterable[Token]) -> Iterator[Piece]:
    for token in tokens:
        kind, end = _KINDS.get(token.token_type, Kind.WORD), token.end + 1
        if kind is not Kind.WORD:
            yield Piece(kind, token.text, token.start, end)
        else:  # sqlglot makes one token of several words (PRIMARY KEY)
            for found in re.finditer(r"\S+", sql[token.start : end]):
                start = token.start
                yield Piece(kind, found[0].upper(), start + found.start(), start + found.end())


@dataclass(slots=True)
class Tokens:
    sql: str
    _pieces: list[Piece]
    place: int = 0
    """Number of tokens already passed."""

    @property
    def at_end(self) -> bool:
        return self.place >= len(self._pieces)

    @property
    def kind(self) -> Kind | None:
        """The kind of the next token; None at the end."""
        return None if self.at_end else self._pieces[self.place].kind

    @property
    def word(self) -> str:
        """The next token in upper case if it is a word or a sign; otherwise ''."""
        return self.peek(0)

    def peek(self, ahead: int = 1) -> str:
        """Return the word `ahead` tokens after the next one; '' if that is not a word."""
        place = self.place + ahead
        if place >= len(self._pieces) or self._pieces[place].kind is not Kind.WORD:
            return ""
        return self._pieces[place].text

    def take(self, *words: str) -> bool:
        """Pass these words if they are the next tokens, in this order."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.place += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Pass and return the next word if it is one of these; otherwise return ''."""
        return self.next().text if self.word in words else ""

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise StatementError(f"{' '.join(words)} expected {self.here()}")

    def next(self) -> Piece:
        if self.at_end:
            raise StatementError("more expected at its end")
        self.place += 1
        return self._pieces[self.place - 1]

    def name(self) -> str:
        """Pass the next token and return it as an identifier, in its own case, even if it is a keyword."""
        before = self.place
        piece = self.next()
        spelled = self.sql[piece.start : piece.end]
        # With ANSI_QUOTES, names are in double quotes.
        if piece.kind is Kind.NAME or spelled.startswith('"'):
            return piece.text
        if piece.kind is not Kind.WORD or not (spelled[0].isalnum() or spelled[0] in "_$"):
            self.place = before
            raise StatementError(f"a name expected {self.here()}")
        return spelled

    def brackets(self) -> Tokens | None:
        """Pass the next brackets and return their contents; None if the next token is not a bracket."""
        if self.word != "(":
            return None
        begin, depth = self.place + 1, 0
        while True:
            depth += {"(": 1, ")": -1}.get(self.word, 0)
            self.next()
            if depth == 0:
                return Tokens(self.sql, self._pieces[begin : self.place - 1])

    def parts(self) -> Iterator[Tokens]:
        """Yield the rest, split at commas outside brackets."""
        while not self.at_end:
            begin = self.place
            while not self.at_end and self.word != ",":
                self.skip()
            yield Tokens(self.sql, self._pieces[begin : self.place])
            self.take(",")

    def skip(self) -> None:
        """Pass the next token, or the next brackets with their contents."""
        if self.brackets() is None:
            self.next()

    def spelled(self, apart: str = " ") -> str:
        """Return the rest as written, without comments. `apart` replaces white space."""
        texts: list[str] = []
        end = None
        for piece in self._pieces[self.place :]:
            if end is not None and end < piece.start:
                texts.append(apart)
            texts.append(self.sql[piece.start : piece.end])
            end = piece.end
        return "".join(texts)

    def spelled_from(self, begin: int) -> str:
        """Return the tokens from the `begin`th to the next one as written, without comments."""
        return Tokens(self.sql, self._pieces[begin : self.place]).spelled()

    @property
    def start(self) -> int:
        """The position of the next token in the text."""
        return len(self.sql) if self.at_end else self._pieces[self.place].start

    def exchanged(self, begin: int, by: str) -> str:
        """Return the statement with `by` in place of the text from `begin` to the last passed token."""
        return self.sql[len(_PREFIX) : begin] + by + self.sql[self._pieces[self.place - 1].end :]

    def here(self) -> str:
        """Describe the current position, for an error."""
        if self.at_end:
            return "at its end"
        start = self._pieces[self.place].start
        return f"before {self.sql[start : start + 40]!r}"
