"""What every other package needs: threads, packed axes."""
