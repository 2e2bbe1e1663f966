"""Records set aside: their headers (`record`), written (`writing`), and read back from their topic
(`topic`)."""
