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

from handlers.mysql_ddl import StatementError

__all__ = ["Kind", "Tokens", "tokens_of"]

# Text in quotes, or an executable comment, whose contents the server runs: `/*!50503 … */`, `/*M! … */`.
_EXECUTABLE = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|/\*M?!\d*(.*?)\*/""", re.DOTALL)
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
    """The first statement of the text.

    Raises StatementError for text that is not made of SQL's tokens (a quote that is never closed).
    """
    text = _PREFIX + _EXECUTABLE.sub(lambda found: found[1] or f" {found[2]} ", sql)
    try:
        found = sqlglot.tokenize(text, read=MySQL)
    except SqlglotError as error:
        raise StatementError(f"not readable as SQL ({error})") from error
    pieces = list(_pieces(text, found[1:]))
    ends = [place for place, piece in enumerate(pieces) if piece[:2] == (Kind.WORD, ";")]
    return Tokens(text, pieces[: ends[0]] if ends else pieces)


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
    _at: int = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._pieces)

    @property
    def kind(self) -> Kind | None:
        """Of the next token; None at the end."""
        return None if self.at_end else self._pieces[self._at].kind

    @property
    def word(self) -> str:
        """The next token in upper case if it is a word or a sign, else ''."""
        return self.peek(0)

    def peek(self, ahead: int = 1) -> str:
        """The word so many tokens after the next one, else ''."""
        place = self._at + ahead
        if place >= len(self._pieces) or self._pieces[place].kind is not Kind.WORD:
            return ""
        return self._pieces[place].text

    def take(self, *words: str) -> bool:
        """Pass these words, if all of them come next in this order."""
        if any(self.peek(ahead) != word for ahead, word in enumerate(words)):
            return False
        self._at += len(words)
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
        self._at += 1
        return self._pieces[self._at - 1]

    def name(self) -> str:
        """The next token as an identifier, whatever word it is, in its own case."""
        where = self.here()
        piece = self.next()
        spelled = self.sql[piece.start : piece.end]
        # With ANSI_QUOTES a name stands in double quotes.
        if piece.kind is Kind.NAME or spelled.startswith('"'):
            return piece.text
        if piece.kind is not Kind.WORD or not (spelled[0].isalnum() or spelled[0] in "_$"):
            raise StatementError(f"a name expected {where}")
        return spelled

    def brackets(self) -> Tokens | None:
        """What the brackets that come next hold, passed; None: no bracket comes next."""
        if self.word != "(":
            return None
        begin, depth = self._at + 1, 0
        while True:
            depth += {"(": 1, ")": -1}.get(self.word, 0)
            self.next()
            if depth == 0:
                return Tokens(self.sql, self._pieces[begin : self._at - 1])

    def parts(self) -> Iterator[Tokens]:
        """The rest, cut at its commas (those within brackets stay)."""
        while not self.at_end:
            begin = self._at
            while not self.at_end and self.word != ",":
                self.skip()
            yield Tokens(self.sql, self._pieces[begin : self._at])
            self.take(",")

    def skip(self) -> None:
        """Pass the next token, or brackets with what they hold."""
        if self.brackets() is None:
            self.next()

    def spelled(self, apart: str = " ") -> str:
        """What is left as the statement spells it, without comments; `apart` replaces all white space."""
        text, end = "", None
        for piece in self._pieces[self._at :]:
            text += (apart if end is not None and end < piece.start else "") + self.sql[
                piece.start : piece.end
            ]
            end = piece.end
        return text

    @property
    def start(self) -> int:
        """Where the next token begins in the text."""
        return len(self.sql) if self.at_end else self._pieces[self._at].start

    def exchanged(self, begin: int, by: str) -> str:
        """The statement with other text from `begin` up to the end of the token that was passed last."""
        return self.sql[len(_PREFIX) : begin] + by + self.sql[self._pieces[self._at - 1].end :]

    def here(self) -> str:
        """The place, for an error."""
        if self.at_end:
            return "at its end"
        return f"before {self.sql[self._pieces[self._at].start :][:40]!r}"
