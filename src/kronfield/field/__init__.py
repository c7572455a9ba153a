"""What can a fit do? Fields: values, derivatives, integrals, standard errors, files."""

from kronfield.field.field import Field

__all__ = ["Field"]
