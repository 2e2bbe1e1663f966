"""The subcommands of `binlane`, one module each. `worker/cli` parses the command line."""
