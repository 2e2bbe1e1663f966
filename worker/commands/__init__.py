"""What each subcommand of `binlane` does, a module for each; `worker/cli.py` reads the command line."""
