"""VariableTracker and its family: one class for each kind of Python value the tracer knows."""
