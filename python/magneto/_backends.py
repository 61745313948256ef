"""Backends: our own by name, those that are registered with torch, and functions of users."""

import functools
import inspect
import logging

OWN = ("magneto", "eager", "inductor")  # "inductor" is what scripts for torch.compile say: they mean the default
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Backend:
    """A function of a torch.fx.GraphModule and example inputs, which returns a callable, and what else it is told."""

    def __init__(self, function, keywords):
        self.function, self.keywords = function, keywords
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __eq__(self, other):
        return isinstance(other, Backend) and (self.function, self.keywords) == (other.function, other.keywords)

    def __hash__(self):
        return hash(self.function)

    def __call__(self, module, examples):
        try:
            return self.function(module, examples, **self.keywords)
        except Exception as error:
            from torch._dynamo.exc import BackendCompilerFailed

            raise BackendCompilerFailed(self.function, error, inspect.currentframe()) from error


def backend_of(backend, mode, options):
    """"magneto", "eager" or a Backend. Raises torch's error for a name that nobody has registered."""
    if isinstance(backend, str) and backend in OWN:
        if mode not in (None, "default"):
            _say_once(f"mode={mode!r} changes nothing: kernels are the same in all modes")
        return "eager" if backend == "eager" else "magneto"
    if isinstance(backend, str):
        from torch._dynamo.backends.registry import lookup_backend

        backend = lookup_backend(backend)
    if not callable(backend):
        raise TypeError(f"a backend is a name or a function of (torch.fx.GraphModule, example inputs), not {type(backend).__name__}")
    keywords = {"mode": mode} if mode not in (None, "default") else {}
    return Backend(backend, keywords | ({"options": dict(options)} if options else {}))


@functools.cache
def _say_once(what):
    logging.getLogger("magneto").warning("%s", what)


def list_backends(exclude_tags=("debug", "experimental")):
    """Names for ``compile(backend=...)``: our own, and those that are registered with torch."""
    import torch

    return sorted({*OWN, *torch.compiler.list_backends(exclude_tags)})


def torch_backend(module, examples, *, mode=None, options=None):
    """``torch.compile(model, backend="magneto")``: torch captures the graph, we compile it."""
    from . import compile

    getattr(module, "real_recompile", lambda: None)()  # torch writes its forward when it is first called
    return compile(module.forward, mode=mode, options=options)
