"""What each subcommand of `binlane` does, a module for each; `worker/cli` reads the command line."""
