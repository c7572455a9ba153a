"""Signals from files: fit a field to them; view, compare, report and export it."""
