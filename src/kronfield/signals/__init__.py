"""What becomes of a file? Fitted, looked at, compared, written again."""
