"""The command line: one module per subcommand family, no logic in it."""
