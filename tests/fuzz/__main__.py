"""Command line of the fuzzer: `python -m tests.fuzz --programs 5000 --seed 0 --subject dynamo_nb`.

Prints progress, every mismatch with its seed, a shrunk program and the difference, and a summary. Exit status 1 if there was
a mismatch, crash or hang, or a seeded fault that was not found. `--faults` runs the seeded faults instead.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch

from .batch import run_many, run_one
from .gen import generate
from .program import Program
from .runner import Outcome, make_program, quiet
from .shrink import shrink
from .subjects import SUBJECTS, Subject, load

FINDINGS = ("differs", "crashed", "hung", "harness error")


def parse(argv: list[str]) -> argparse.Namespace:
    """Command line options."""
    p = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    p.add_argument("--programs", type=int, default=500)
    p.add_argument("--seed", type=int, default=0, help="first seed")
    p.add_argument("--subject", default="dynamo_nb", choices=sorted(SUBJECTS))
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--strict", default="", help="passed to the subject, e.g. retrace")
    p.add_argument("--batch", type=int, default=25)
    p.add_argument("--timeout", type=float, default=60.0, help="seconds for one program")
    p.add_argument("--shrink", type=float, default=30.0, help="seconds to spend on shrinking one finding; 0 shows the program as it is")
    p.add_argument("--shrinks", type=int, default=2, help="findings of one kind to shrink; later ones are listed only")
    p.add_argument("--stop", type=int, default=0, help="stop after this many findings")
    p.add_argument("--min-graph", type=float, default=0.0, help="fail below this percentage of programs with a graph")
    p.add_argument("--min-whole", type=float, default=0.0, help="fail below this percentage of programs captured whole")
    p.add_argument("--why", action="store_true", help="list the reasons for graph breaks in the first calls")
    p.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed and exit")
    p.add_argument("--faults", nargs="*", metavar="NAME", help="run seeded faults (all, or the named ones)")
    p.add_argument("--per-fault", type=int, default=250, help="programs allowed for one seeded fault")
    return p.parse_args(argv)


def report(outcome: Outcome, program: Program | None, subject: Subject, seconds: float) -> None:
    """Print one finding."""
    print(f"\n=== seed {outcome.seed}: {outcome.status} ({outcome.signature})")
    for diff in outcome.diffs[:5]:
        print(f"  {diff}")
    if outcome.note:
        print("  " + "\n  ".join(outcome.note.strip().splitlines()[-25:]))
    if program is None:
        return
    if seconds:
        program = shrink(program, outcome, subject, seconds)
        final = run_one(program, subject)
        for diff in final.diffs[:3]:
            print(f"  shrunk: {diff}")
    print(f"  program, {program.calls} calls:")
    lines = [line for line in program.source.strip().splitlines() if line.strip() and not (line.startswith(("import ",
                                                                                                    "from ")) and unused(line,
                                                                                                                         program.source))]
    print("    " + "\n    ".join(lines))


def unused(line: str, source: str) -> bool:
    """Whether an import line's name appears nowhere else."""
    return len(re.findall(rf"\b{line.split()[-1]}\b", source)) < 2


def summary(outcomes: list[Outcome], seconds: float, why: bool) -> None:
    """Print the figures."""
    ran = [o for o in outcomes if o.status != "discarded"]
    total = max(1, len(ran))
    status = Counter(o.status for o in outcomes)
    kinds = Counter(o.signature for o in outcomes if o.status in FINDINGS)
    graph = sum(o.graphs > 0 and o.ops > 0 for o in ran)
    whole = sum(o.whole for o in ran)
    rate = len(outcomes) / max(seconds, 1e-9)
    print(f"\n{len(outcomes)} programs in {seconds:.1f} s ({rate:.1f}/s); {status['discarded']} discarded as not deterministic")
    print(f"mismatches {status['differs']}, crashes {status['crashed']}, hangs {status['hung']}, "
          f"harness errors {status['harness error']}")
    print(f"with a graph {graph} ({100 * graph / total:.1f} %), whole {whole} ({100 * whole / total:.1f} %), "
          f"raising {sum(o.raised for o in ran)}")
    reasons = Counter(r for o in ran for r in o.reasons or (("no break, but not one graph",) if not o.whole else ()))
    for reason, count in reasons.most_common(30 if why else 0):
        print(f"  {count:4d} not whole: {reason}; seeds {' '.join(str(o.seed) for o in ran if reason in o.reasons)[:60]}")
    for kind, count in kinds.most_common():
        seeds = [o.seed for o in outcomes if o.status in FINDINGS and o.signature == kind]
        print(f"  {count:4d} {kind}: seeds {' '.join(map(str, seeds[:12]))}{' ...' if len(seeds) > 12 else ''}")


def main(argv: list[str]) -> int:
    """Run and return the exit status."""
    options = parse(argv)
    quiet()
    torch.set_num_threads(1)
    if options.show is not None:
        print(make_program(options.show).source)
        return 0
    subject = load(options.subject, options.strict)
    if options.faults is not None:
        from .faults import run_faults

        return run_faults(options.faults, subject, options.seed, options.per_fault, options.jobs)
    start = time.monotonic()
    outcomes: list[Outcome] = []
    shown: Counter[str] = Counter()
    found = 0
    for outcome in run_many(range(options.seed, options.seed + options.programs), subject, options.jobs, options.batch, options.timeout):
        outcomes.append(outcome)
        if len(outcomes) % 250 == 0:
            print(f"... {len(outcomes)} programs, {found} findings, {time.monotonic() - start:.0f} s", flush=True)
        if outcome.status not in FINDINGS:
            continue
        found += 1
        shown[outcome.signature] += 1
        if shown[outcome.signature] <= options.shrinks:
            report(outcome, generate(outcome.seed, outcome.attempt) if outcome.seed >= 0 else None, subject, options.shrink)
        else:
            print(f"=== seed {outcome.seed}: {outcome.status} ({outcome.signature})")
        sys.stdout.flush()
        if options.stop and found >= options.stop:
            break
    summary(outcomes, time.monotonic() - start, options.why)
    share = [100 * sum(map(test, outcomes)) / max(1, len(outcomes)) for test in (lambda o: o.graphs > 0 and o.ops > 0, lambda o: o.whole)]
    return 1 if found or share[0] < options.min_graph or share[1] < options.min_whole else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
