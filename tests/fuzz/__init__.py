"""Differential fuzzer: random Python programs run eagerly and compiled, and every visible effect compared.

Reading order: `program` (what a program is), `gen` (how one is written), `runner` (how it is run twice and compared),
`batch` (many, in forked processes), `shrink` (making a finding small), `faults` (proof that faults are found), `__main__`.
"""
