"""Backends: an FX graph in, a callable out (chapter 12.33)."""
