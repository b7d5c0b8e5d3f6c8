"""Plain data shared by every layer: options, errors, events, records, sources, assumptions, trace rules.

Nothing here imports another package of the project, torch's compilers or a notebook library.
"""
