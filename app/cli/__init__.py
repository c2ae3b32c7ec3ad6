"""The command line: one file for each subject. What is heavy is imported by the command that needs it, when it runs."""

from app.cli.commands import main

__all__ = ["main"]
