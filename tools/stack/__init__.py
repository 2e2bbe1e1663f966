"""`make stack`: what docker-compose.yml starts, without containers."""
