"""Compile records as the compiler makes them, written by hand for the report tests."""

from __future__ import annotations

from dynamo_nb.core.generated import GeneratedRecord, KernelRecord, NodeFate
from dynamo_nb.core.records import BreakRecord, CompileRecord, GraphRecord, GuardRecord, Location, NodeRecord

FILE = "/tmp/ipykernel_7/123.py"
SOURCE = '''def attention(q, k, v, *, scale=None, debug=False):
    """Scaled dot product."""
    s = scale or q.shape[-1] ** -0.5
    w = (q @ k.transpose(-1, -2)) * s
    if debug:
        print("max", w.max().item())
    if w.sum() > 0:
        w = w - w.amax(-1, keepdim=True)  # stable
    return (w
            .softmax(-1) @ v)
'''


def at(line: int, text: str = "") -> Location:
    return Location(FILE, line, "attention", text)


def graph(count: int = 4, name: str = "__compiled_fn_0_aa") -> GraphRecord:
    nodes = [NodeRecord("q", "placeholder", "L_q_", (), "[2, 3, 4]", "torch.float32")]
    nodes += [
        NodeRecord(f"mul_{i}", "call_function", "operator.mul", ("q", "s"), "[2, 3, 3]", "torch.float32", at(4)) for i in range(count)
    ]
    nodes.append(NodeRecord("output", "output", "output", (f"mul_{count - 1}",)))
    return GraphRecord(name, "class GraphModule(torch.nn.Module):\n    def forward(self, q):\n        return (q * 2,)", tuple(nodes),
                       "aot_eager", 0.012)


def branch_break() -> BreakRecord:
    return BreakRecord("NB9101", "DataDependentBranching", "if on a tensor: w.sum() > 0 has no value while tracing",
                       "The graph is built before any number is known, so the branch can't be chosen.",
                       "w = torch.where(w.sum() > 0, w - w.amax(-1, keepdim=True), w)",
                       at(7, "    if w.sum() > 0:"), (at(7, "if w.sum() > 0:"), Location(FILE, 3, "helper", "x")))


def records() -> list[CompileRecord]:
    """A frame that breaks, its resume function, and a recompile of the first."""
    first = CompileRecord("0/0", "attention", FILE, 1, 10, SOURCE, outcome="compiled", graphs=[graph()],
                          guards=[GuardRecord("L['q']", "TENSOR_MATCH", "tensor, float32, size [2, 3, 4], stride [12, 4, 1]", at(3)),
                                  GuardRecord("L['debug']", "CONSTANT_MATCH", "L['debug'] is False", at(5)),
                                  GuardRecord("", "GRAD_MODE", "grad mode is on")],
                          breaks=[branch_break()], effects=["L['log'].append('x')"],
                          original_bytecode="  3  0 RESUME 0\n     2 LOAD_FAST q",
                          modified_bytecode="  3  0 RESUME 0\n     2 LOAD_CONST fn",
                          compiled_lines={FILE: [3, 4, 5]}, stages={"trace": 0.020, "guards": 0.001, "backend": 0.012})
    rest = CompileRecord("1/0", "attention", FILE, 1, 10, SOURCE, resumed_from="0/0", outcome="compiled",
                         graphs=[graph(2, "__compiled_fn_1_bb")], compiled_lines={FILE: [8, 9, 10]}, stages={"trace": 0.008})
    again = CompileRecord("0/1", "attention", FILE, 1, 10, SOURCE, outcome="compiled", graphs=[graph(4, "__compiled_fn_2_cc")],
                          breaks=[branch_break()], compiled_lines={FILE: [3, 4, 5]}, stages={"trace": 0.01},
                          recompile_reasons=["L['q']: size[1] expected 3, got 5"])
    return [first, rest, again]


class Generated:
    """What a code generator would hand over."""

    def __init__(self, made: GeneratedRecord) -> None:
        self.made = made

    def record(self) -> GeneratedRecord:
        return self.made


def generated(word: str) -> Generated:
    """One kernel and one call, every text of which is `word`."""
    place = Location(word, 2, word, word)
    nodes = (NodeFate(word, word, "kernel", (word,), location=place), NodeFate("b", word, "aten", why=word))
    kernel = KernelRecord(word, word, word, word, word, (word,), (place,), word, word, 8, 8)
    return Generated(GeneratedRecord(word, nodes, (kernel,), (word,), {word: 0.1}, word))


HOSTILE_FILE = "/tmp/<img src=x onerror=document.title='owned'>.py"
HOSTILE = CompileRecord(
    "0/0", "</pre><script>document.title='owned'</script>", HOSTILE_FILE, 1, 2,
    'def f(x):\n    return x + "</pre><script>document.title=\'owned\'</script>"\n', outcome="compiled",
    graphs=[GraphRecord("<script>document.title='owned'</script>", "</pre><script>document.title='owned'</script>",
                        (NodeRecord("<b>n</b>", "call_function", "<script>", ("<i>",), "<u>", "<u>"),), "<img src=x onerror=alert(1)>",
                        parts=[generated("</pre><script>document.title='owned'</script>")])],
    guards=[GuardRecord("L['<script>']", "EQUALS_MATCH", "L['s'] == '<script>document.title=\"owned\"</script>'")],
    breaks=[BreakRecord("NB<script>", "<script>", "<script>document.title='owned'</script>", "<img src=x onerror=document.title='owned'>",
                        "</pre><script>document.title='owned'</script>", Location(HOSTILE_FILE, 2, "<script>", "<script>"))],
    recompile_reasons=["<script>document.title='owned'</script>"], effects=["<script>document.title='owned'</script>"],
    original_bytecode="<script>document.title='owned'</script>", modified_bytecode="<script>document.title='owned'</script>",
    stages={"<script>": 0.1}, why="<script>document.title='owned'</script>", compiled_lines={"/tmp/<img>": [2]},
)
