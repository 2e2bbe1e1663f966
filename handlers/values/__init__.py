"""Values of rows and their types: long decimals, dates beyond the calendar, JSON, names of PostgreSQL."""
