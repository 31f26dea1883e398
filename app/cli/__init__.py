"""The command line `trainjob-advisor`: the planner for a terminal or a pipeline."""

from app.cli.root import main

__all__ = ["main"]
