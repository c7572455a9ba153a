"""Foundations of all other packages: arrays, checks, errors, frames, threads, progress, files."""
