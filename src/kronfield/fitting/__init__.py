"""What is chosen, and how? `fit`, `fit_points`, `Statistics`."""
