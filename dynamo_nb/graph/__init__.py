"""From a finished trace to code: the FX graph is closed, effects, stack and locals become bytecode (chapter 12.12, 12.31, 12.38)."""
