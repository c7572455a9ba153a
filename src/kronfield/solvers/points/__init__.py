"""Least squares at points: rows, normal equations, penalties, and the ways to solve them."""
