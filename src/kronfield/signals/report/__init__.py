"""What a picture report shows, and its page."""
