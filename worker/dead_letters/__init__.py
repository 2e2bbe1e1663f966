"""Records set aside: their headers (`record`), writing them (`writing`), and reading them back from their
topic (`topic`)."""
