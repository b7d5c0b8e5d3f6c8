"""Everything that knows a Python version's bytecode: instructions, assembler, analyses, resume code, listings.

Comes in: code objects and lists of instructions. Goes out: code objects. Called by the tracer
(`symbolic`), code generation (`graph`), the frame hook (`hook`) and the logs. Importing it on an
interpreter whose bytecode is unknown raises ImportError. Version facts stand in `v311`.
"""
