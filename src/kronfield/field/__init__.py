"""What can a fit do? Fields: values, derivatives, integrals, errors, files."""

from kronfield.field.field import Field

__all__ = ["Field"]
