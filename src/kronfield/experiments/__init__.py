"""The experiments of the paper: every table and figure, and a verdict on each claim."""

from kronfield.experiments.reproduce import NAMES, Report, reproduce
from kronfield.experiments.spec import Spec, load_spec

__all__ = ["NAMES", "Report", "Spec", "load_spec", "reproduce"]
