"""The tracer: executes a frame's bytecode on symbolic values (chapter sections 12.4, 12.9, 12.14)."""
