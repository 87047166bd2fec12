"""The buildpack's door: functions-framework finds the three functions here by their names."""

from functions.complete.main import complete
from functions.entry.main import entry
from functions.generate.main import generate

__all__ = ["complete", "entry", "generate"]
