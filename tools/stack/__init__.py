"""`make stack`: the services of docker-compose.yml, without containers."""
