# mypy: ignore-errors
"""Six threads compile and run one function with a graph break, printing to a Python-level stream. In a process of its own, with limited memory and time."""

import subprocess
import sys

PROGRAM = """
import io, resource, sys, threading
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
import torch, dynamo_nb

class Stream(io.TextIOBase):
    def write(self, text):
        return len(text)

def work(x, k):
    y = x * 2
    print(end="", file=STREAM)
    print("text", file=STREAM)
    return y + k

STREAM = Stream()
compiled = dynamo_nb.compile(work, backend="aot_eager")
start, wrong = threading.Barrier(6), []

def go(k):
    start.wait()
    for n in range(1, 6):
        if not torch.equal(compiled(torch.ones(n), k), torch.full((n,), 2.0 + k)):
            wrong.append((k, n))

threads = [threading.Thread(target=go, args=(k,)) for k in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert wrong == [], wrong
print("fine")
"""


def test_threads_wait_for_the_compiler() -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=40)
        assert done.returncode == 0 and "fine" in done.stdout, (done.returncode, done.stderr[-2000:])
