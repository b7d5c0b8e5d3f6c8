"""Opcode handlers, a mixin class for each family; the translator inherits them all."""
