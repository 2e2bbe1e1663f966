"""The database written to: connections, its tables as they are, new ones, and what its errors mean."""
