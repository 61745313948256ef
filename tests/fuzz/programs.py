"""Random whole Python programs, against eager: control flow, containers, classes, exceptions, state that changes between calls.

    python tests/fuzz/programs.py --seed 1 --programs 2000 [--device cuda] [--jobs 2] [--shrink] [--out folder] [--seconds 150]

A program is a module (classes, helpers, and a function `f` that is compiled) and a list of steps: calls of `f` and changes of
the world between them. Both worlds, eager and compiled, make the module anew and go through the steps; after each one a
picture (tests/python/picture.py) is taken of everything: results, arguments, globals, what was printed and raised, gradients.
The grammar is in `python_statements.py`.
"""

import ast
import contextlib
import copy
import dataclasses
import gc
import io
import itertools
import linecache
import os
import random
import re
import signal
import sys
import traceback
import types
import warnings

import observe  # also makes the modules of tests/python known
import torch
import torch._dynamo  # torch imports it late: not inside of a program that was interrupted

import magneto
from picture import Picture, scrub
from python_statements import Grammar, Scope
from runner import Fuzzer, Outcome, alone, operators, violated

PRELUDE = '''
import collections, contextlib, copy, dataclasses, enum, functools, itertools, operator, types
import torch


def T(seed, grad=False):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


class Stop(Exception):
    def __init__(self, code):
        super().__init__(f"stop {code}")
        self.code = code


class Mode(enum.Enum):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", ["t", "n"])


@dataclasses.dataclass
class Record:
    t: object
    n: int = 2

    def scaled(self):
        return self.t * self.n


class P:
    rank = 1
    shared = T(90)

    def __init__(self, t, n=1):
        self.t, self.n, self.rate, self.name, self.items, self.extra = t, n, 0.5, "a", [t], t + 1

    def scaled(self, z):
        return z * self.n + self.rate

    def __call__(self, z):
        return z + self.t

    def __getitem__(self, k):
        return (self.t, self.items[-1])[k]

    def __setitem__(self, k, value):
        self.items[k] = value

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __add__(self, other):
        return self.t + other

    def __eq__(self, other):
        return isinstance(other, P) and self.n == other.n

    __hash__ = object.__hash__

    @property
    def twice(self):
        return self.t * 2

    @twice.setter
    def twice(self, value):
        self.t = value / 2

    def __enter__(self):
        self.n += 1
        return self

    def __exit__(self, kind, error, trace):
        self.n -= 1
        return kind is Stop

    def bump(self, z):
        self.n += 1
        self.t, old = z, self.t
        return old

    def count(self, k):
        return len(self.items) + k

    @functools.cached_property
    def total(self):
        return sum(self.items) + self.n

    def child(self):
        return type(self)(self.t + 1, self.n)

    @classmethod
    def make(cls, t):
        return cls(t, cls.rank)

    @staticmethod
    def static(z):
        return z * 3


class Ending:
    """Its end can be seen."""

    def __init__(self, n):
        self.n = n

    def __del__(self):
        LOG.append(-10 - self.n)


class Slotted:
    __slots__ = ("t", "n")

    def __init__(self, t):
        self.t = t

    def twice(self):
        self.n = 2
        return self.t * self.n


class Q(P):
    rank = 2

    def scaled(self, z):
        return super().scaled(z) - 1

    def __getattr__(self, name):
        if name == "extra":
            return self.__dict__["t"]
        raise AttributeError(name)


@contextlib.contextmanager
def swapped(o, t):
    old, o.t = o.t, t
    try:
        yield old
    finally:
        o.t = old


@contextlib.contextmanager
def noted(n):
    LOG.append(n)
    yield [n, n + 1]
    LOG.append(-n)


def helper(t, n=2):
    if n > 2:
        return t - n
    return t * n


fast = compiled(helper)  # a compiled function inside of another one


@functools.lru_cache
def factor(n):
    return n * 0.5 + 1


def many(t, *rest, k=None, **more):
    for r in rest:
        t = t + r
    return t if k is None else t * k


def recursive(t, n):
    return t if n <= 0 else recursive(t + n, n - 1) * 2


def closure_of(n):
    total = n

    def inner(z):
        nonlocal total
        total += 1
        return z * total
    return inner


def stream(t, n):
    for k in range(n):
        yield t * k


def guarded(ts, n):
    """A generator with a handler, which is sent numbers, left early or closed."""
    try:
        for k, t in enumerate(ts):
            if k == n:
                return
            got = yield t + k
            if got is not None:
                LOG.append(got)
    finally:
        LOG.append(-n)


def delegating(ts, n):
    yield from guarded(ts, n)
    yield ts[0] if ts else C1


def picked(t):
    """Raises when the numbers of INDEX are too large: only the data know."""
    return (t + torch.zeros(2, 3))[INDEX]


def plus_one(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1
    return wrapper


@plus_one
def decorated(z):
    return z * 2


def tick():
    global COUNT
    COUNT = (COUNT + 1) % 4


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
        self.register_buffer("seen", torch.zeros(3))
        self.calls, self.last, self.scale = 0, None, 1.0
        with torch.no_grad():
            for k, p in enumerate(self.parameters()):
                p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed + k)))

    def forward(self, z):
        self.calls += 1
        if self.training:
            self.seen += z.detach().sum(0)
        y = self.layers(self.inner(z)) * self.scale
        self.last = y.detach()
        return y


C1, C2, C3, C4, C5, C6 = (T(91 + k) for k in range(6))
CONFIG = {"n": 1, "rate": 0.5, "t": C4, "o": P(C5, 1)}
KEPT = CONFIG["o"]
CACHE = {"a": C6}
RECENT = collections.deque([C1, C2], maxlen=4)
FAST = P(C3, 2)
FAST.scaled = compiled(FAST.scaled)  # a method that is compiled by itself
VIEW = types.MappingProxyType(CACHE)
COUNTS = collections.defaultdict(int)
GROUPS = collections.defaultdict(list)
SCALE = functools.partial(helper, n=2)
INDEX = torch.tensor([0, 1])


def as_at_first(seed):
    """The globals as they were before the first call, the very objects, with other numbers."""
    global COUNT
    for k, c in enumerate([C1, C2, C3, C4, C5, C6]):
        c.detach_()
        c.copy_(T(seed + k))
    CONFIG.clear()
    CONFIG.update(n=1, rate=0.5, t=C4, o=KEPT)
    KEPT.__dict__.clear()
    KEPT.__init__(C5, 1)
    CACHE.clear()
    CACHE["a"] = C6
    RECENT.clear()
    RECENT.extend([C1, C2])
    COUNTS.clear()
    GROUPS.clear()
    SCALE.keywords["n"] = 2
    INDEX.copy_(torch.tensor([0, 1]))
    LOG.clear()
    COUNT = 0
    if P.rank != 1:
        P.rank = 1


OPS = {"neg": torch.neg, "double": lambda z: z * 2}
LOG = []
COUNT = 0
MODE = Mode.A
'''

STATE = ["CONFIG", "CACHE", "RECENT", "COUNTS", "GROUPS", "INDEX", "LOG", "COUNT", "MODE", "C1", "C2", "C3", "C4", "C5", "C6"]
PARAMETERS = {"t": "T", "u": "T", "xs": "LT", "d": "DT", "o": "O", "p": "O", "n": "I", "s": "S", "flag": "B", "ks": "LI", "rate": "F"}


@dataclasses.dataclass
class Program:
    source: str  # of the functions
    steps: list  # statements of the driver; "f(...)" are calls
    options: dict = dataclasses.field(default_factory=dict)


class Maker:
    def __init__(self, seed, number):
        self.number = f"python {seed} {number}"
        self.rng = random.Random(self.number)
        self.g = Grammar(self.rng)

    def make(self):
        rng, g = self.rng, self.g
        names = sorted(rng.sample(sorted(PARAMETERS), rng.randint(2, 6)), key=list(PARAMETERS).index)
        if not any(PARAMETERS[name] == "T" for name in names):
            names.insert(0, "t")
        # which tensors of the driver need gradients
        grad = rng.random() < 0.4
        scope = Scope({name: PARAMETERS[name] for name in names})
        modules = rng.random() < 0.3
        if modules:
            names.append("net")
            scope.names["net"] = "M"
            if rng.random() < 0.4:  # a second one beside it: a copy, or the same module once more
                names.append("twin")
                scope.names["twin"] = "M"
        text = []
        defaults = [f"{name}={rng.choice(['2', '3']) if name == 'n' else repr('a')}" if name in ("n", "s") and rng.random() < 0.2 else name for name in names]
        plain = [d for d in defaults if "=" not in d]
        given = [d.split("=")[0] for d in defaults if "=" in d]
        text.append(f"def f({', '.join(plain + [d for d in defaults if '=' in d])}):")
        for _ in range(rng.randint(2, 9)):
            text += g.indent(g.statement(scope, ("function",)))
        text.append(f"    return {g.result(scope)}")
        order = plain + given
        steps = self.start(order, grad)
        fresh = rng.random() < 0.6  # the caller makes new arguments for each call, as most do: guards hold, and calls are replayed
        call = lambda: f"r = f({', '.join(f'{name}={name}' if name in given else name for name in order if name not in given or rng.random() < 0.7)})"
        driver = Scope({name: kind for name, kind in PARAMETERS.items() if name in names})
        steps.append(call())
        for k in range(rng.randint(2, 6)):
            if fresh:
                steps += self.start([name for name in order if name not in ("net", "twin")], grad, k + 1)
                steps.append(f"as_at_first({100 * k})")
            if rng.random() < (0.25 if fresh else 0.6):
                for _ in range(rng.randint(1, 2)):
                    steps.append("\n".join(self.change(driver, order, modules)))
            if modules and rng.random() < 0.3:
                steps.append("optimizer.step(); optimizer.zero_grad()")
            steps.append(call())
        options = {"dynamic": rng.choices([None, True, False], [8, 1, 1])[0]}
        plain = lambda text: ast.unparse(ast.parse(text))  # without parentheses that nobody needs
        try:
            return self.repaired(Program(plain("\n".join(text)) + "\n", [plain(step) for step in steps], options))
        except SyntaxError:  # a walrus in a comprehension, say
            return None

    def repaired(self, program):
        """The program without most of what raises in eager: the rest of a function that has raised is not tested."""
        for _ in range(12):
            if self.rng.random() < 0.08:
                return program
            world, bad = World(program, lambda f, **rest: f), None
            try:
                with at_most(1.0):
                    for k, text in enumerate(program.steps):
                        with contextlib.redirect_stdout(io.StringIO()):
                            error = world.run(text)
                        if error is not None:
                            bad = k, error
                            break
            except (TooLong, RecursionError):
                return None
            if bad is None:
                return program
            k, error = bad
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == world.name and frame.name == "f"]
            if not program.steps[k].startswith("r = f(") or not lines:
                program = dataclasses.replace(program, steps=program.steps[:k] + program.steps[k + 1:])
                continue
            at = lines[0] - world.first_line
            tree = ast.parse(program.source)
            body = tree.body[0].body
            kept = [node for node in body if not node.lineno <= at <= node.end_lineno or isinstance(node, ast.Return)]
            if len(kept) == len(body):  # it is the return
                kept[-1] = ast.parse("def f():\n    return t").body[0].body[0]
            tree.body[0].body = kept
            program = dataclasses.replace(program, source=ast.unparse(ast.fix_missing_locations(tree)) + "\n")
        return program

    def start(self, names, grad, round=0):
        """The arguments of a call: new objects, equal in all but their numbers."""
        rng, g = random.Random(f"{self.number}"), ", True" if grad else ""
        made = {"t": f"t = T(1{g})", "u": f"u = T(2{g if rng.random() < 0.5 else ''})", "xs": f"xs = [T(3{g}), T(4)]", "d": "d = {'a': T(5), 'b': T(6)}", "o": f"o = P(T(7{g}), 2)", "p": "p = Q(T(8), 1)",
                "n": f"n = {rng.randrange(4)}", "s": "s = 'a'", "flag": f"flag = {rng.random() < 0.5}", "ks": "ks = [1, 2, 3]", "rate": "rate = 0.5",
                "twin": f"twin = {rng.choice(['compiled(copy.deepcopy(model))', 'copy.deepcopy(net)', 'copy.copy(net)', 'compiled(model)', 'compiled(Net(51))', 'model', 'compiled(net.layers)'])}",
                "net": "model = Net(50)\nnet = compiled(model)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)"}
        steps = [re.sub(r"T\((\d+)", lambda match: f"T({int(match[1]) + 100 * round}", made[name]) for name in names]
        shares = {("t", "xs"): "xs[0] = t", ("t", "o"): "o.t = t", ("o", "p"): "p.items = o.items", ("t", "d"): "d['b'] = t", ("t", "u"): "u = t", ("xs", "d"): "d['a'] = xs[-1]",
                  ("o", "xs"): "o.items = xs", ("d",): "CACHE = d", ("xs", "t"): "t = xs[0][:]"}
        for key, text in shares.items():
            if all(name in names for name in key) and rng.random() < 0.15:
                steps.append(text)
        return steps

    def change(self, scope, names, modules):
        """What the caller does between two calls."""
        rng, g = self.rng, self.g
        own = [f"t = T({rng.randrange(20, 30)})", "n = (n + 1) % 4", "s = 'b' if s == 'a' else 'a'", "flag = not flag", "rate = rate + 0.25", "xs = [T(11), T(12), T(13)]", "d = {'b': T(14), 'a': T(15)}",
               "o = P(T(16), 3)", "p = o", "ks.append(2)", "xs.append(T(17))", "d['c'] = T(18)", "o.t = T(19)", "u = t", "xs[0] = xs[-1]", "t = torch.randn(4, 3, generator=torch.Generator().manual_seed(5))", "o = copy.deepcopy(o)",
               "xs = tuple(xs)", "n = True", "n = 2.5", "d = dict(reversed(d.items()))", "t = t.double()", "u = None"]
        possible = [text for text in own if text.split("=")[0].split(".")[0].split("[")[0].strip() in names]
        if modules and rng.random() < 0.5:
            return [rng.choice(["net.eval()", "net.train()", "net.scale = 2.0", "net = compiled(copy.deepcopy(model))", "net.inner = torch.nn.Linear(3, 3)\nwith torch.no_grad(): [p.fill_(0.1) for p in net.inner.parameters()]",
                                "net.layers = torch.nn.Sequential(net.layers[0])", "net2 = copy.deepcopy(net); r2 = net2(T(40))", "r2 = net.layers(T(41))", "r2 = compiled(net.layers)[:1](T(42))",
                                "net.inner.weight.data.mul_(2)", "model.calls = 0", "net.load_state_dict(Net(60).state_dict())", "net.requires_grad_(False)", "r2 = compiled(Net(70))(T(43))"])]
        if possible and rng.random() < 0.6:
            return [rng.choice(possible)]
        return g.statement(scope, ("driver",))


class TooLong(BaseException):
    """A list that doubles at each call: no program for a test."""


@contextlib.contextmanager
def at_most(seconds):
    """Ends what takes more processor time."""
    def end(number, frame):
        raise TooLong

    old = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


# ---- running --------------------------------------------------------------------------------------------------------

_numbers = itertools.count()


class World:
    """One side: the module made anew, `f` as it is or compiled."""

    def __init__(self, program, compiled):
        # no number in the name: it is part of tracebacks, and of what is compared
        self.name = f"<program {next(_numbers)}>"
        text = PRELUDE + "\n\n" + program.source
        linecache.cache[self.name] = (len(text), None, text.splitlines(True), self.name)
        module = types.ModuleType("program")
        sys.modules["program"] = module  # dataclasses look their module up
        self.scope = module.__dict__
        self.scope["compiled"] = compiled
        exec(compile(text, self.name, "exec"), self.scope)
        self.function = self.scope["f"]
        self.scope["f"] = compiled(self.function)
        self.first_line = (PRELUDE + "\n\n").count("\n")

    def run(self, text):
        """Goes through one step; the error that it ended with."""
        torch.default_generator.manual_seed(7)
        self.scope.pop("r", None)
        try:
            exec(compile(text, "<step>", "exec"), self.scope)
        except Exception as error:
            return error

    def step(self, text):
        """Goes through one step and returns its picture."""
        picture, out = Picture(rough=True), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            raised = self.run(text)
            watched = {name: self.scope[name] for name in [*PARAMETERS, *STATE] if name in self.scope}
            picture.draw("argument", list(watched.values()))
            picture.draw("P", [P_state(self.scope["P"])])
            for name in ("net", "twin"):
                if isinstance(self.scope.get(name), torch.nn.Module):
                    picture.draw(name, module_state(self.scope[name]))
            for name in ("r2", "r"):
                if name in self.scope:
                    picture.draw("result" if name == "r" else name, self.scope[name], drain=False, is_result=True)
            if raised is not None:
                picture.draw("raised", raised)
            picture.draw_process_state()
            if "r" in self.scope:
                picture.draw_gradients()
        picture.lines += [f"printed: {scrub(line)}" for line in out.getvalue().splitlines()]
        picture.let_go()
        raised = None  # its traceback may hold this frame
        gc.collect()
        return picture


def P_state(cls):
    return {"rank": cls.rank, "shared": cls.shared}


def module_state(net):
    return {"parameters": dict(net.named_parameters()), "buffers": dict(net.named_buffers()), "calls": getattr(net, "calls", None), "last": getattr(net, "last", None),
            "training": net.training, "grads": {name: p.grad for name, p in net.named_parameters()}}


def difference(want, have, spread=None):
    """The first lines that differ, and of which kind they are. `spread()`: by path, how far eager's own numbers move."""
    for x, y in itertools.zip_longest(want.lines, have.lines, fillvalue="nothing"):
        if x != y:
            if lets_leaves_share(x, y, want.lines):
                return None  # the names of all that follow differ, too
            return kind_of_line(x, y), f"{y}   instead of   {x}"
    moved = None
    for (path, x), (_, y) in zip(want.values, have.values):
        if x.dtype == y.dtype and torch.equal(x, y):
            continue
        wrong = observe.exceeds(x, y)
        if wrong is not None and wrong.any() and spread is not None:
            moved = spread() if moved is None else moved
            wrong = observe.exceeds(x, y, moved.get(path))
        if wrong is None or wrong.any():
            return "value", f"{path}: {y.tolist()[:6]} instead of {x.tolist()[:6]}"
    return None


def lets_leaves_share(x, y, lines):
    """Eager lets two leaves take over views of one gradient, and adds to both at once. Ours have memory of their own."""
    line, storage = x.split(", storage ")[0], x.split(", storage ")[-1]
    return ".grad" in line and line == y.split(", storage ")[0] and any(
        ".grad" in other and other.endswith(f", storage {storage}") and other != x for other in lines)


def kind_of_line(x, y):
    for word in ("raised", "printed", "grad", "rng", "same as"):
        if word in x or word in y:
            return word
    if "Tensor" in x and "Tensor" in y:
        return "tensor"
    return "structure"


READS = r"\.item\(|\.tolist\(|> 0\.37"


def off_by_last_bits(program, number):
    """What eager shows after step `number` when each operator is off by its last bit; more than once."""
    for round in range(observe.Spread.ROUNDS):
        world = World(program, lambda f, **rest: f)
        with observe.Noise(round):
            yield [world.step(text) for text in program.steps[:number + 1]][-1]


def moves(program, number, want):
    """Whether rounding decides which way eager goes, or what it prints."""
    return re.search(READS, program.source) and any(seen.lines != want.lines for seen in off_by_last_bits(program, number))


def spread_of(program, number, want):
    """How far eager's numbers of step `number` move when each operator is off by its last bit: what rounding makes of them."""
    moved = {}
    for seen in off_by_last_bits(program, number):
        if seen.lines != want.lines:  # another way through the program
            continue
        for (path, x), (_, y) in zip(want.values, seen.values):
            if x.dtype in observe.rounding.UNITS:
                wide = torch.complex128 if x.is_complex() else torch.float64
                far = torch.where(x == y, 0.0, (x.to(wide) - y.to(wide)).abs()).nan_to_num(float("inf"), float("inf"), float("inf"))
                moved[path] = torch.maximum(moved[path], far) if path in moved else far
    return moved


@contextlib.contextmanager
def collected_after_steps():
    """What is held by a cycle ends at the same time in both worlds: after the step, not whenever the collector runs."""
    was = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def check(program, backend="magneto"):
    with warnings.catch_warnings(), collected_after_steps():
        warnings.simplefilter("ignore")
        magneto.reset()
        try:
            with at_most(1.0):
                eager = World(program, lambda f, **rest: f)
                seen = [eager.step(text) for text in program.steps]
        except (SyntaxError, RecursionError, TooLong) as error:
            return Outcome(kind="unmade", text=str(error))
        ours = World(program, lambda f, **rest: magneto.compile(f, backend=backend, **program.options))
        for number, (text, want) in enumerate(zip(program.steps, seen)):
            have = ours.step(text)
            found = difference(want, have, lambda: spread_of(program, number, want))
            if found is not None:
                if found[0] != "value" and moves(program, number, want):
                    return violated()  # numbers that were read are a matter of rounding, and so is all that follows
                first = text.splitlines()[0]
                return Outcome(kind=f"wrong {found[0]}", text=f"step {number} ({first}): {found[1]}"[:1500], facts=number)
    return violated()


# ---- shrinking ------------------------------------------------------------------------------------------------------

class Bodies(ast.NodeVisitor):
    """All lists of statements of a tree: (node, field)."""

    def __init__(self):
        self.found = []

    def generic_visit(self, node):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, field, None), list) and getattr(node, field):
                self.found.append((node, field))
        super().generic_visit(node)


def bodies(tree):
    visitor = Bodies()
    visitor.visit(tree)
    return visitor.found


def edited(source, place, edit):
    """The source with one list of statements changed by `edit`."""
    tree = ast.parse(source)
    node, field = bodies(tree)[place]
    made = edit(list(getattr(node, field)))
    if not made and field == "body":
        made = [ast.Pass()]
    setattr(node, field, made)
    with contextlib.suppress(Exception):
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def smaller_sources(source):
    """Fewer statements first, then simpler expressions."""
    tree = ast.parse(source)
    places = bodies(tree)
    for size in (4, 2, 1):
        for place, (node, field) in enumerate(places):
            count = len(getattr(node, field))
            if isinstance(node, ast.Module):
                continue
            for start in range(count - size, -1, -1):
                if isinstance(getattr(node, field)[start], ast.Return) and size == 1 and isinstance(node, ast.FunctionDef):
                    pass
                yield edited(source, place, lambda body, start=start, size=size: body[:start] + body[start + size:])
    for place, (node, field) in enumerate(places):
        for k, statement in enumerate(getattr(node, field)):
            if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
                for part in ("body", "orelse", "finalbody"):
                    if getattr(statement, part, None):
                        yield edited(source, place, lambda body, k=k, part=part: body[:k] + getattr(body[k], part) + body[k + 1:])
    yield from simpler_expressions(source)


def simpler_expressions(source):
    """An expression replaced by a part of it, or by a constant."""
    count = sum(isinstance(node, ast.expr) and not isinstance(node, (ast.Name, ast.Constant)) for node in ast.walk(ast.parse(source)))

    def change(index, choose):
        tree = ast.parse(source)
        position = itertools.count()

        class Replace(ast.NodeTransformer):
            def generic_visit(self, node):
                if isinstance(node, ast.expr) and not isinstance(node, (ast.Name, ast.Constant)) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                    if next(position) == index:
                        return choose(node) or node
                return super().generic_visit(node)

        with contextlib.suppress(Exception):
            return ast.unparse(ast.fix_missing_locations(Replace().visit(tree))) + "\n"

    def part(number):
        def choose(node):
            parts = [child for child in ast.walk(node) if isinstance(child, ast.expr) and child is not node and isinstance(getattr(child, "ctx", ast.Load()), ast.Load)]
            return parts[number] if number < len(parts) else None
        return choose

    for index in range(count):
        for number in range(3):
            yield change(index, part(number))
        for text in ("t", "2", "[t]"):
            yield change(index, lambda node, text=text: ast.parse(text, mode="eval").body)


def smaller(program, failed_step=None):
    steps = program.steps
    if failed_step is not None and failed_step + 1 < len(steps):
        yield dataclasses.replace(program, steps=steps[:failed_step + 1])
    for size in (4, 2, 1):
        for start in range(len(steps) - 1 - size, -1, -1):
            yield dataclasses.replace(program, steps=steps[:start] + steps[start + size:])
    if program.options.get("dynamic") is not None:
        yield dataclasses.replace(program, options={})
    for text in smaller_sources(program.source):
        if text is not None and text != program.source:
            yield dataclasses.replace(program, source=text)
    yield from fewer_arguments(program)
    for k, step in enumerate(steps):
        for text in simpler_expressions(step) if not step.startswith("r = f(") else ():
            if text is not None and text.strip() != step:
                yield dataclasses.replace(program, steps=steps[:k] + [text.strip()] + steps[k + 1:])


def fewer_arguments(program):
    tree = ast.parse(program.source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f")
    for argument in [a.arg for a in function.args.args]:
        if any(isinstance(node, ast.Name) and node.id == argument for node in ast.walk(function)):
            continue
        if function.args.defaults:
            continue
        made = ast.parse(program.source)
        f = next(node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "f")
        f.args.args = [a for a in f.args.args if a.arg != argument]
        steps = []
        for step in program.steps:
            if step.startswith("r = f("):
                inside = [part for part in step[len("r = f("):-1].split(", ") if part not in (argument, f"{argument}={argument}")]
                step = f"r = f({', '.join(inside)})"
            steps.append(step)
        yield dataclasses.replace(program, source=ast.unparse(made) + "\n", steps=steps)


def used_prelude(program):
    """The prelude's names that a program uses, so that a reader knows where to look."""
    return sorted(set(re.findall(r"\b(P|Q|Record|Pair|swapped|noted|helper|many|recursive|closure_of|stream|decorated|tick|Net|CONFIG|CACHE|OPS|LOG|COUNT|MODE)\b", program.source + "\n".join(program.steps))))


def script(program, outcome):
    words = "".join(f"# {line}\n" for line in f"{outcome.kind}: {outcome.text}".strip().splitlines()[:8])
    if outcome.stage:
        words += f"# stage: {outcome.stage}\n"
    steps = "\n".join(f"    {step!r}," for step in program.steps)
    return f"""{words}import sys; sys.path.insert(0, "tests/fuzz")
from programs import run_script

run_script('''
{program.source}''', steps=[
{steps}
], options={program.options!r})
"""


def run_script(source, steps, options):
    torch.set_num_threads(1)
    outcome = check(Program(source, steps, options), os.environ.get("MAGNETO_TEST_BACKEND", "magneto"))
    print(outcome.kind or "right", outcome.text, sep="\n")
    sys.exit(int(outcome.failed))


class Programs(Fuzzer):
    name = "python"
    smaller = staticmethod(smaller)
    source = staticmethod(lambda program: program.source + "\n".join(program.steps) + repr(program.options))
    script = staticmethod(script)

    def arguments(self, parser):
        parser.add_argument("--backend", default="magneto", choices=["magneto", "eager"])
        parser.add_argument("--avoid", metavar="REGEX", help="no step that matches: what is known to fail would hide the rest")

    def operators(self, program):
        try:
            return operators(program.source + "\n" + "\n".join(program.steps))
        except SyntaxError:
            return []

    def setup(self):
        torch.set_num_threads(1)

    def generate(self, seed, number):
        program = Maker(seed, number).make()
        if program is not None and self.options.avoid:
            program.steps = [step for step in program.steps if not re.search(self.options.avoid, step)]
        return program

    def check(self, program):
        return check(program, self.options.backend)

    def stage(self, outcome, folder):
        failed = alone(lambda program: check(program, "eager"), outcome.program, self.limit, folder).failed
        return "backend='eager' fails, too" if failed else "backend='eager' is right: kernels or training halves"


if __name__ == "__main__":
    sys.exit(Programs().main())
