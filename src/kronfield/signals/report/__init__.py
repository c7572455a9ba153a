"""The picture report of a fit: its content and its page."""
