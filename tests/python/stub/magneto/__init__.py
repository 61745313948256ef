"""Magneto's public surface with nothing behind it: compile gives the function back.

MAGNETO_STUB=1 puts this in place of the real package, to check that the tests themselves are right: whatever
fails here is a fault of a test. Tests that assert what was captured are marked `needs_capture` and left out.
"""

import functools

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
BACKENDS = ("magneto", "inductor", "eager")


class Report:
    def __init__(self):
        self.graphs, self.breaks, self.guards, self.recompiles, self.fallbacks = [], [], [], [], []
        self.graph_count = self.break_count = 0

    def __str__(self):
        return "0 graphs, 0 breaks"


def compile(model=None, *, fullgraph=False, dynamic=None, backend="magneto", mode=None, options=None, disable=False):
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    if isinstance(backend, str) and backend not in BACKENDS:
        from torch._dynamo.exc import InvalidBackend

        raise InvalidBackend(backend)
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                 options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile takes a function or a module, not {type(model).__name__}")
    return model


def explain(model):
    def run(*args, **kwargs):
        model(*args, **kwargs)
        return Report()

    return run


def report():
    return Report()


def reset():
    pass
