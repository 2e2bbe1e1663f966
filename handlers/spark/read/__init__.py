"""For those who read: tables as of their newest segment (`current`, `view`), and which tables there are."""
