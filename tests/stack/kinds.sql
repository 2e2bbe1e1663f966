-- Rows of most types, and what changes them and their tables, for two connectors of one source.
CREATE TABLE shop.kinds (
  id BIGINT UNSIGNED PRIMARY KEY, tiny TINYINT, flag TINYINT(1), small SMALLINT, medium MEDIUMINT UNSIGNED,
  plain INT, big BIGINT UNSIGNED, money DECIMAL(12, 3), wide DECIMAL(38, 10), single FLOAT, twice DOUBLE,
  bits BIT(5), day DATE, at DATETIME(6), moment TIMESTAMP(3) NULL, clock TIME(3), year YEAR,
  word VARCHAR(40) DEFAULT 'word', text LONGTEXT, bytes VARBINARY(20), blobs BLOB, doc JSON,
  colour ENUM('red', 'green'), letters SET('a', 'b', 'c'), place POINT
);
INSERT INTO shop.kinds VALUES
  (1, -128, 1, -32768, 16777215, -2147483648, 18446744073709551615, -12.345, 1234567890123456789012345678.0123456789,
   1.5, -2.25, b'10101', '2026-02-28', '2026-02-28 12:34:56.123456', '2026-02-28 12:34:56.789', '-12:34:56.789', 2026,
   'grün', 'long', x'00ff10', x'', '{"a": [1, null, "x"]}', 'green', 'a,c', ST_GeomFromText('POINT(1 2)'));
INSERT INTO shop.kinds (id) VALUES (2);
INSERT INTO shop.kinds (id, word, doc) VALUES (18446744073709551615, '', 'null');
UPDATE shop.kinds SET plain = 7, text = NULL WHERE id = 1;
UPDATE shop.kinds SET id = 3 WHERE id = 2;
DELETE FROM shop.kinds WHERE id = 18446744073709551615;
ALTER TABLE shop.kinds ADD COLUMN later DECIMAL(6, 2) NOT NULL DEFAULT 1.25 AFTER id, DROP COLUMN tiny;
UPDATE shop.kinds SET later = 3.5 WHERE id = 3;
ALTER TABLE shop.kinds MODIFY COLUMN plain BIGINT, CHANGE COLUMN word words VARCHAR(80);
INSERT INTO shop.kinds (id, plain, words) VALUES (4, 9223372036854775807, 'last');
CREATE TABLE shop.keyless (a INT, b VARCHAR(10));
INSERT INTO shop.keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
DELETE FROM shop.keyless WHERE a = 1 LIMIT 1;
CREATE TABLE shop.pairs (b INT, a VARCHAR(10), v INT, PRIMARY KEY (a, b));
INSERT INTO shop.pairs VALUES (1, 'x', 1), (2, 'y', 2);
UPDATE shop.pairs SET v = 3;
INSERT INTO shop.pairs VALUES (99, 'end', 99);
