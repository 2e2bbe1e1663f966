"""What each subcommand of `binlane` does."""
