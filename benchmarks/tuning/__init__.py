"""Scripts that set the decisions of `kronfield.fitting.settings` again, and check their tests."""
