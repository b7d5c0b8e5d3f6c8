"""Tests of dynamo_nb.cpython."""
