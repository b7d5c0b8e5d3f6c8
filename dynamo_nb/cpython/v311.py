"""CPython 3.11 facts that the interpreter's own metadata does not give.

Goes out: small tables and opcode sequences read by `facts` and `instruction`; nothing else imports
this module, so a later version is one more file with the same names.
"""

from __future__ import annotations

VERSION = (3, 11)

# Opcodes after which control never reaches the next instruction.
TERMINATORS = ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")

# Jumps that exist once per direction: (forward, backward).
JUMP_PAIRS = (
    ("JUMP_FORWARD", "JUMP_BACKWARD"),
    ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE"),
    ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE"),
    ("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE"),
    ("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"),
)
# Backward-only spelling and what replaces it when its target turns out to lie ahead.
BACKWARD_ONLY = {"JUMP_BACKWARD_NO_INTERRUPT": "JUMP_FORWARD"}

# Name operands that carry flag bits below the index: opcode -> number of bits.
NAME_SHIFT = {"LOAD_GLOBAL": 1}

# dis.stack_effect books a call's pops at PRECALL and a generator's first sent value nowhere;
# these follow what is really on the stack between the instructions.
STACK_EFFECT_OVERRIDES = {
    "PRECALL": lambda arg: 0,
    "CALL": lambda arg: -(arg + 1),
    "RETURN_GENERATOR": lambda arg: 1,
}

# Instructions that must stand directly before another: a specialised PRECALL skips what follows it.
MUST_PRECEDE = {"KW_NAMES": "PRECALL", "PRECALL": "CALL"}

LOCAL_READS = ("LOAD_FAST", "DELETE_FAST")
LOCAL_WRITES = ("STORE_FAST", "DELETE_FAST")

JUMP = "JUMP_FORWARD"
POP_JUMP = {
    True: "POP_JUMP_FORWARD_IF_TRUE",
    False: "POP_JUMP_FORWARD_IF_FALSE",
    None: "POP_JUMP_FORWARD_IF_NONE",
    "not None": "POP_JUMP_FORWARD_IF_NOT_NONE",
}


def call_sequence(nargs: int) -> tuple[tuple[str, int], ...]:
    """Opcodes of a call with `nargs` arguments once NULL, callable and arguments are on the stack."""
    return (("PRECALL", nargs), ("CALL", nargs))
