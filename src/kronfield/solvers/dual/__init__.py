"""The dual form: similarities between points instead of weights on a grid."""
