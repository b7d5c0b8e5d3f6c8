"""The public operations: compile, explain, export, reset and their helpers."""
