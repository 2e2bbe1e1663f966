"""Segments brought into Delta tables: what each mode makes of them (`modes`), each exactly once
(`commits`), and tables whose columns follow the source's."""
