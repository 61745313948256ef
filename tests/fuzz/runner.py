"""Runs generated programs by the thousand, in forked processes, and shrinks those that fail.

A *fuzzer* has four functions:

    generate(seed, number)   a program: anything that pickles
    check(program)           an Outcome: what went wrong, or nothing
    smaller(program, facts)  simpler programs, the most promising first; `facts` is what the last check noted
    script(program, found)   the program as a script of its own

One process has torch and computes nothing. It forks workers; each takes a batch of programs and writes down which one it is
about to run, so that a crash or a hang has its program's number. What a worker left undone, the next one does.

A failure is shrunk greedily: each smaller program is checked in a fork of its own, and taken if it fails in the same way.
"""

import argparse
import ast
import collections
import dataclasses
import importlib
import itertools
import os
import pathlib
import pickle
import runpy
import select
import signal
import struct
import sys
import tempfile
import time
import traceback

import torch

import magneto

NOT_MADE = 75  # the exit status of a worker that could not make a program


@dataclasses.dataclass
class Outcome:
    """`kind`: None (right), "unsure" (eager does not repeat itself), "wrong ...", "crash ...", "hang" or "violated" (a verifier's)."""

    kind: str = None
    text: str = ""
    facts: object = None
    number: int = -1
    program: object = None
    stage: str = ""  # a guess at the guilty part, for the reader

    @property
    def failed(self):
        return self.kind not in (None, "unsure", "unmade")


def violated():
    """What a verifier found since the last reset: a fault of ours, although the answer is eager's."""
    reasons = [graph.fallback for graph in magneto.report().graphs if "a bug in Magneto" in graph.fallback]
    return Outcome(kind="violated", text="\n".join(reasons)[:1500]) if reasons else Outcome()


def quiet(log):
    """What the program, torch or glibc print is no output of the fuzzer."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)


def send(pipe, value):
    data = pickle.dumps(value)
    data = struct.pack("<q", len(data)) + data
    while data:
        data = data[os.write(pipe, data):]


class Worker:
    """A forked process that checks programs and reports each; `limit` seconds for one of them."""

    def __init__(self, task, items, limit, folder):
        self.items, self.limit, self.buffer, self.started = list(items), limit, b"", time.monotonic()
        self.log = os.path.join(folder, f"log{time.monotonic_ns()}")
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.pipe)
                quiet(self.log)
                for item in self.items:
                    send(write, task(item))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(write)

    def read(self):
        """The outcomes that have come; None at the end."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            return None
        self.buffer += data
        found = []
        while len(self.buffer) >= 8:
            (length,) = struct.unpack("<q", self.buffer[:8])
            if len(self.buffer) < 8 + length:
                break
            found.append(pickle.loads(self.buffer[8:8 + length]))
            self.buffer = self.buffer[8 + length:]
        if found:
            self.started = time.monotonic()
            self.items = self.items[len(found):]
        return found

    def hangs(self):
        return time.monotonic() - self.started > self.limit

    def end(self, kill=False):
        """How the process ended: None for as it should, or words."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        with open(self.log, errors="replace") as file:
            self.said = file.read()
        os.unlink(self.log)
        if kill:
            return "hang"
        if os.WIFSIGNALED(status):
            return f"crash {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WEXITSTATUS(status) == NOT_MADE:
            return "unmade"
        return None if os.WEXITSTATUS(status) == 0 else f"crash exit {os.WEXITSTATUS(status)}"


def alone(check, program, limit, folder):
    """The outcome of one program in a process of its own."""
    worker = Worker(check, [program], limit, folder)
    outcome = None
    while True:
        ready, _, _ = select.select([worker.pipe], [], [], max(0.01, worker.limit - (time.monotonic() - worker.started)))
        if not ready:
            return Outcome(kind=worker.end(kill=True), program=program)
        found = worker.read()
        if found is None:
            ended = worker.end()
            if outcome is not None and (ended is None or outcome.failed):
                return outcome
            return Outcome(kind=ended or "crash without a word", text=worker.said[-2000:], program=program)
        for outcome in found:
            outcome.program = program


def same_kind(a, b):
    if a.kind.startswith("crash"):
        return b.kind is not None and b.kind.startswith("crash")
    return a.kind == b.kind


class Fuzzer:
    """What the command line of both fuzzers does; see the head of this file for the functions of a fuzzer."""

    name, batch, limit = "programs", 60, 60.0

    def arguments(self, parser):
        pass

    def stage(self, outcome, folder):
        return ""

    def operators(self, program):
        return operators(self.source(program))

    def shrink(self, outcome, folder, seconds=120.0):
        """The smallest program that is found to fail in the same way, and its outcome."""
        deadline, best, tried = time.monotonic() + seconds, outcome, set()
        again = alone(self.check, outcome.program, self.limit, folder)
        if not again.failed:
            outcome.text += " (not when it runs alone)"
            return outcome
        best, attempts, progress = again, 0, True
        while progress:  # until nothing smaller fails; after a success the next candidates come first, not those that were right
            progress, skip = False, 0
            while skip is not None:
                candidates, at, skip = enumerate(self.smaller(best.program, best.facts)), skip, None
                for index, candidate in candidates:
                    if index < at or (key := self.source(candidate)) in tried:
                        continue
                    if time.monotonic() > deadline:
                        progress = False
                        break
                    tried.add(key)
                    attempts += 1
                    found = alone(self.check, candidate, min(self.limit, 20.0), folder)
                    if found.failed and same_kind(best, found):
                        found.facts = best.facts if found.facts is None else found.facts
                        best, progress, skip = found, True, index
                        break
        best.number, best.attempts = outcome.number, attempts
        best.stage = self.stage(best, folder)
        return best

    # ---- the command line ----

    def main(self):
        parser = argparse.ArgumentParser(description=sys.modules[type(self).__module__].__doc__.splitlines()[0])
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--programs", type=int, default=2000)
        parser.add_argument("--first", type=int, default=0, help="number of the first program")
        parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
        parser.add_argument("--seconds", type=float, default=0, help="stop after that long; 0: never")
        parser.add_argument("--shrink", action="store_true", help="shrink what fails")
        parser.add_argument("--shrink-at-most", type=int, default=40, metavar="N", help="failures to shrink")
        parser.add_argument("--out", help="a folder for the scripts of failures")
        parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
        parser.add_argument("--show", type=int, metavar="NUMBER", help="print one program and run it, here")
        parser.add_argument("--again", metavar="FOLDER", help="run the scripts of a folder instead: which ones still fail?")
        self.arguments(parser)
        self.options = parser.parse_args()
        self.setup()
        if self.options.show is not None:
            program = self.generate(self.options.seed, self.options.show)
            print(self.script(program, Outcome()))
            outcome = self.check(program)
            print(outcome.kind, outcome.text)
            return int(outcome.failed)
        return self.again() if self.options.again else self.run()

    def again(self):
        """Runs scripts of earlier failures, each in a fork."""
        def task(path):
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as end:
                return Outcome(kind="wrong" if end.code else None)
            return Outcome()

        left = 0
        importlib.import_module(pathlib.Path(sys.modules[type(self).__module__].__file__).stem)  # as the scripts do
        with tempfile.TemporaryDirectory() as folder:
            for path in sorted(pathlib.Path(self.options.again).glob("*.py")):
                outcome = alone(task, path, self.limit, folder)
                left += outcome.failed
                print(f"{path.name}: {outcome.kind or 'right'}  {path.read_text().splitlines()[0][:150] if outcome.failed else ''}", flush=True)
        print(f"{left} still fail")
        return int(left > 0)

    def setup(self):
        pass

    def task(self, number):
        try:
            program = self.generate(self.options.seed, number)
        except torch.AcceleratorError:  # a line that eager refuses on a GPU: nothing runs there any more in this process
            os._exit(NOT_MADE)
        if program is None:
            return Outcome(kind="unmade", number=number)
        outcome = self.check(program)
        outcome.number = number
        if outcome.failed:
            outcome.program = program
        return outcome

    def run(self):
        options, start = self.options, time.monotonic()
        counts, failures, done, said = collections.Counter(), [], 0, start
        numbers = iter(range(options.first, options.first + options.programs))
        pending, workers = [], []
        stop = lambda: options.seconds and time.monotonic() - start > options.seconds
        with tempfile.TemporaryDirectory() as folder:
            self.folder = folder

            def fill():
                while len(workers) < options.jobs and not stop():
                    items = pending.pop() if pending else [n for _, n in zip(range(self.batch), numbers)]
                    if not items:
                        return
                    workers.append(Worker(self.task, items, self.limit, folder))

            def note(outcome):
                counts[outcome.kind.split()[0] if outcome.kind else "right"] += 1
                if outcome.failed:
                    failures.append(outcome)
                    self.save(outcome)

            fill()
            while workers:
                ready, _, _ = select.select([w.pipe for w in workers], [], [], 1.0)
                for worker in list(workers):
                    found = worker.read() if worker.pipe in ready else []
                    for outcome in found or ():
                        done += 1
                        note(outcome)
                    ended = None
                    if found is None:
                        ended = worker.end()
                    elif worker.hangs():
                        ended = worker.end(kill=True)
                    elif stop():
                        worker.end(kill=True)
                        workers.remove(worker)
                        continue
                    else:
                        continue
                    workers.remove(worker)
                    if ended is not None and worker.items:
                        number, *rest = worker.items
                        done += 1
                        outcome = Outcome(kind=ended, text=worker.said[-1500:], number=number, program=number)
                        if outcome.failed and self.ends_in_eager(outcome):
                            outcome = Outcome(kind="unsure", number=number)
                        note(outcome)
                        if rest:
                            pending.append(rest)
                fill()
                now = time.monotonic()
                if sys.stderr.isatty() or now > said + 60:  # a log does not need every number
                    said = now
                    print(f"  {done} programs, {len(failures)} failed, {done / (now - start):.1f} a second",
                          end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
            elapsed = time.monotonic() - start
            print(file=sys.stderr)
            if options.shrink and failures:
                self.shrink_all(failures, folder)
        print(f"{elapsed:.0f} s, {done / elapsed:.1f} programs a second; {counts['unsure']} unsure, {counts['unmade']} not made")
        print(f"{done} programs, {counts['wrong']} wrong, {counts['crash']} crashed, {counts['hang']} hung, {counts['violated']} violated (seed {options.seed})")
        return 1 if failures else 0

    def plainly(self, program):
        """The program without the compiler, in whatever process that is."""
        return Outcome()

    def ends_in_eager(self, outcome):
        """torch itself ends the process for some arguments (gather of an index that is out of range, on an Arm)."""
        program = self.remade(outcome)
        return program is None or alone(self.plainly, program, self.limit, self.folder).failed

    def remade(self, outcome):
        """The program of a failure; one that ended its process is generated again, in a fork."""
        if isinstance(outcome.program, int):
            made = alone(lambda number: Outcome(facts=self.generate(self.options.seed, number)), outcome.program, self.limit, self.folder)
            outcome.program = made.facts
        return outcome.program

    def save(self, outcome, suffix=""):
        name = f"{self.name}_{self.options.seed}_{outcome.number}{suffix}.py"
        first = outcome.text.strip().splitlines()[0] if outcome.text.strip() else ""
        print(f"\n{outcome.number}: {outcome.kind}: {first[:200]}", flush=True)
        if self.options.out:
            program = self.remade(outcome)
            if program is not None:
                folder = pathlib.Path(self.options.out)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(self.script(program, outcome))

    def shrink_all(self, failures, folder):
        """Shrinks failures and prints them by class: how they fail, and the operators of the smallest program."""
        classes = collections.defaultdict(list)
        by_kind = collections.defaultdict(list)
        for outcome in failures:
            by_kind[outcome.kind].append(outcome)
        in_turn = [outcome for row in itertools.zip_longest(*by_kind.values()) for outcome in row if outcome is not None]
        for outcome in in_turn[:self.options.shrink_at_most]:
            if self.remade(outcome) is None:
                continue
            started = time.monotonic()
            best = self.shrink(outcome, folder)
            print(f"shrunk {outcome.number} in {time.monotonic() - started:.0f} s, {getattr(best, 'attempts', 0)} attempts", file=sys.stderr, flush=True)
            self.save(best, "_small")
            classes[best.kind, " ".join(self.operators(best.program))].append(best)
        for (kind, names), found in sorted(classes.items(), key=lambda item: -len(item[1])):
            smallest = min(found, key=lambda best: len(self.source(best.program)))
            print(f"\n==== {len(found)} x {kind}: {names}    (programs {', '.join(str(best.number) for best in found)})")
            print(self.script(smallest.program, smallest))


def operators(source):
    """The names of the functions, methods and operators that a text uses."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            f = node.func
            names.add(f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else "call")
        elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
            names.add(type(node.op).__name__.lower())
        elif isinstance(node, ast.AugAssign):
            names.add(f"i{type(node.op).__name__.lower()}")
        elif isinstance(node, ast.Compare):
            names.add("compare")
        elif isinstance(node, ast.Subscript):
            names.add("setitem" if isinstance(node.ctx, ast.Store) else "getitem")
        elif isinstance(node, ast.Attribute) and node.attr in ("mT", "T", "real", "imag", "data"):
            names.add(node.attr)
    return sorted(names)
