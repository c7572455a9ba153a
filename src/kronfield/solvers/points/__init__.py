"""Least squares at points: rows, normal equations, penalties, and strategies to solve them."""
