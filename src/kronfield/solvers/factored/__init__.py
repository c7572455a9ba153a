"""Factored weights: sums of products of one function per axis, by alternating least squares."""
