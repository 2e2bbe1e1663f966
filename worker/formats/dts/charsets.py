"""MySQL's character sets, by which DTS sends text."""

from __future__ import annotations

from codecs import charmap_decode
from collections.abc import Callable

# https://dev.mysql.com/doc/refman/8.0/en/charset-charsets.html; ucs2, utf16 and utf32 are big endian there.
_CODECS = {
    "ascii": "ascii", "usascii": "ascii",
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "gb2312": "gb2312", "gbk": "gbk", "gb18030": "gb18030", "big5": "big5",
    "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp", "euckr": "cp949", "tis620": "tis_620",
    "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "hp8": "hp_roman8",
    "koi8r": "koi8_r", "koi8u": "koi8_u",
    "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257",
    "macce": "mac_latin2", "macroman": "mac_roman",
}  # fmt: skip


def _latin1_characters() -> str:
    """MySQL's latin1 is cp1252, whose five unused bytes it keeps as control characters."""
    unused = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
    return "".join(chr(byte) if byte in unused else bytes([byte]).decode("cp1252") for byte in range(256))


_LATIN1 = _latin1_characters()


def _read_latin1(data: bytes) -> str:
    return charmap_decode(data, "strict", _LATIN1)[0]


def text_decoder(charset: str) -> Callable[[bytes], str | bytes]:
    """How bytes of a character set are read; `binary` leaves them bytes.

    Raises ValueError for a character set that is not known here."""
    name = charset.lower().replace("-", "").replace("_", "")
    if name == "binary":
        return bytes
    if name == "latin1":
        return _read_latin1
    codec = _CODECS.get(name)
    if codec is None:
        raise ValueError(f"text in the character set {charset!r}, which is not known here")
    return bytes.decode if codec == "utf-8" else lambda data: data.decode(codec)
