"""For readers: tables as of their newest segment (`current`, `view`), and the list of tables."""
