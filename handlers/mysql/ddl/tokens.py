"""A statement as a row of tokens that a parser walks along. The tokens are sqlglot's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import sqlglot
from sqlglot import Token, TokenType

# By its class, not its name: of threads that ask for a name first, one may get a dialect that is half made.
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

from handlers.mysql.ddl.operations import StatementError

# Text in quotes, or a comment; an executable one's contents the server runs: `/*!50503 … */`, `/*M! … */`.
# Each alternative goes to its end in one way, or to the statement's: nothing is looked at twice.
_EXECUTABLE = re.compile(
    r"""(?P<text>'(?:[^'\\]++|\\.)*+'?|"(?:[^"\\]++|\\.)*+"?|`[^`]*+`?)
    |/\*M?!\d*+(?P<run>.*?)(?:(?P<closed>\*/)|\Z)
    |/\*.*?(?:\*/|\Z)|(?:\#|--)[^\n]*+""",
    re.DOTALL | re.VERBOSE,
)
_MOST_CHARACTERS = 256 << 10
"""Of a statement without its texts and comments: each may be a token, of which a thousand take a MiB for a
moment."""
_MOST_DEPTH = 64
"""Of brackets within brackets."""
# In front of the statement, so that sqlglot takes its first word for no command, whose rest it keeps whole.
_PREFIX = ", "


class Kind(Enum):
    WORD = "word"
    """A keyword, a name without backticks, or a sign."""
    NAME = "name"
    """In backticks."""
    TEXT = "text"
    NUMBER = "number"
    BITS = "bits"
    BYTES = "bytes"


class Piece(NamedTuple):
    kind: Kind
    text: str
    """Without quotes and escapes; a word in upper case."""
    start: int
    end: int
    """Its place in the statement."""


_KINDS = {
    TokenType.IDENTIFIER: Kind.NAME,
    TokenType.STRING: Kind.TEXT,
    TokenType.NATIONAL_STRING: Kind.TEXT,
    TokenType.NUMBER: Kind.NUMBER,
    TokenType.BIT_STRING: Kind.BITS,
    TokenType.HEX_STRING: Kind.BYTES,
}


def tokens_of(sql: str) -> Tokens:
    """The first statement of the text, without the variables that SET STATEMENT gives it.

    Raises StatementError for text that is not made of SQL's tokens (a quote that is never closed), and for a
    statement that is too long or too deep."""
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
                raise StatementError(f"more than {_MOST_DEPTH} brackets within each other")
        pieces.append(piece)
    tokens = Tokens(text, pieces)
    if tokens.take("SET", "STATEMENT"):  # of MariaDB: variables for the statement behind FOR
        while not tokens.at_end and not tokens.take("FOR"):
            tokens.skip()
    return tokens


def _without_frames(sql: str) -> str:
    """The statement with what its executable comments hold. Raises StatementError when it is too long."""
    passed = 0

    def opened(found: re.Match[str]) -> str:
        nonlocal passed
        if found["closed"]:
            return f" {found['run']} "
        passed += len(found[0]) - 1
        return found[0]

    text = _EXECUTABLE.sub(opened, sql)
    if len(text) - passed > _MOST_CHARACTERS:
        raise StatementError(f"{len(text) - passed} characters, and a statement may have {_MOST_CHARACTERS}")
    return text


def _pieces(sql: str, tokens: Iterable[Token]) -> Iterator[Piece]:
    for token in tokens:
        kind, end = _KINDS.get(token.token_type, Kind.WORD), token.end + 1
        if kind is not Kind.WORD:
            yield Piece(kind, token.text, token.start, end)
        else:  # sqlglot makes one token of words that belong together (PRIMARY KEY)
            for found in re.finditer(r"\S+", sql[token.start : end]):
                start = token.start
                yield Piece(kind, found[0].upper(), start + found.start(), start + found.end())


@dataclass(slots=True)
class Tokens:
    sql: str
    _pieces: list[Piece]
    place: int = 0
    """How many tokens are passed."""

    @property
    def at_end(self) -> bool:
        return self.place >= len(self._pieces)

    @property
    def kind(self) -> Kind | None:
        """Of the next token; None at the end."""
        return None if self.at_end else self._pieces[self.place].kind

    @property
    def word(self) -> str:
        """The next token in upper case if it is a word or a sign, else ''."""
        return self.peek(0)

    def peek(self, ahead: int = 1) -> str:
        """The word so many tokens after the next one, else ''."""
        place = self.place + ahead
        if place >= len(self._pieces) or self._pieces[place].kind is not Kind.WORD:
            return ""
        return self._pieces[place].text

    def take(self, *words: str) -> bool:
        """Pass these words, if all of them come next in this order."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.place += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Pass the next word if it is one of these, and return it, else ''."""
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
        """The next token as an identifier, whatever word it is, in its own case."""
        before = self.place
        piece = self.next()
        spelled = self.sql[piece.start : piece.end]
        # With ANSI_QUOTES a name stands in double quotes.
        if piece.kind is Kind.NAME or spelled.startswith('"'):
            return piece.text
        if piece.kind is not Kind.WORD or not (spelled[0].isalnum() or spelled[0] in "_$"):
            self.place = before
            raise StatementError(f"a name expected {self.here()}")
        return spelled

    def brackets(self) -> Tokens | None:
        """What the brackets that come next hold, passed; None: no bracket comes next."""
        if self.word != "(":
            return None
        begin, depth = self.place + 1, 0
        while True:
            depth += {"(": 1, ")": -1}.get(self.word, 0)
            self.next()
            if depth == 0:
                return Tokens(self.sql, self._pieces[begin : self.place - 1])

    def parts(self) -> Iterator[Tokens]:
        """The rest, cut at its commas (those within brackets stay)."""
        while not self.at_end:
            begin = self.place
            while not self.at_end and self.word != ",":
                self.skip()
            yield Tokens(self.sql, self._pieces[begin : self.place])
            self.take(",")

    def skip(self) -> None:
        """Pass the next token, or brackets with what they hold."""
        if self.brackets() is None:
            self.next()

    def spelled(self, apart: str = " ") -> str:
        """What is left as the statement spells it, without comments; `apart` replaces all white space."""
        texts: list[str] = []
        end = None
        for piece in self._pieces[self.place :]:
            if end is not None and end < piece.start:
                texts.append(apart)
            texts.append(self.sql[piece.start : piece.end])
            end = piece.end
        return "".join(texts)

    @property
    def start(self) -> int:
        """Where the next token begins in the text."""
        return len(self.sql) if self.at_end else self._pieces[self.place].start

    def exchanged(self, begin: int, by: str) -> str:
        """The statement with other text from `begin` up to the end of the token that was passed last."""
        return self.sql[len(_PREFIX) : begin] + by + self.sql[self._pieces[self.place - 1].end :]

    def here(self) -> str:
        """The place, for an error."""
        if self.at_end:
            return "at its end"
        start = self._pieces[self.place].start
        return f"before {self.sql[start : start + 40]!r}"
