"""The public functions: signatures, docstrings, one call each."""

import functools
import inspect
import os
import sys
import types

import torch

from . import _C
from ._backends import MODES, OWN, backend_of
from ._module import compiled_module, original_of, settings_of

_OPTIONS = ("cache_size_limit", "check")


def compile(model=None, *, fullgraph=False, dynamic=None, backend="magneto", mode=None, options=None, disable=False):
    """Compiles a function, method or module; also a decorator, with or without arguments.

    The signature is torch.compile's. ``fullgraph=True`` raises an error that lists every break instead of running the
    parts between them. ``dynamic=None``: sizes are fixed until one of them changes, then that one is a symbol;
    ``True``: all of them are symbols from the first call on; ``False``: never. ``backend``: "magneto" (also "inductor"),
    "eager", the operator-by-operator executor, a name that is registered with torch, or a function that gets
    ``(torch.fx.GraphModule, example_inputs)`` and returns a callable, which runs from the second call on. ``options``:
    "cache_size_limit", how often a function is recorded again, and "check", runs eager beside the compiled graphs: "first"
    (beside the first run of each), "every", or n, beside every n-th; the environment's MAGNETO_CHECK says the same for all
    that is compiled. A backend of others gets all other options.
    """
    _check(mode, backend, options, dynamic)
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"magneto.compile needs a function, method or nn.Module, not {type(model).__name__}")
    if disable:
        return model
    limit = (options or {}).get("cache_size_limit", 8)
    others = {key: value for key, value in (options or {}).items() if key not in _OPTIONS}
    settings = (fullgraph, limit, dynamic, backend_of(backend, mode, others), _checked_runs(options))
    if isinstance(model, type):
        return _with_compiled_call(model, lambda function: _C.compile_function(function, None, *settings))
    if isinstance(model, torch.nn.Module):
        original = original_of(model)
        if original is None:
            return compiled_module(model, settings)
        return model if settings_of(model) == settings else compiled_module(original, settings)
    if _C.is_compiled(model) and _C.settings_of(model) == settings:
        return model
    return _compiled_function(model, settings)


def _compiled_function(model, settings):
    compiled = _C.compile_function(*_function_of(model), *settings)
    return functools.update_wrapper(compiled, getattr(model, "__wrapped__", model) if _C.is_compiled(model) else model)


def _reduced(compiled):
    """A compiled function is pickled by its name, like a function, where that is what the name stands for."""
    function, self = _C.target_of(compiled)
    if self is None:
        found = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is compiled:
            return function.__qualname__
    target = self if function is None else function if self is None else types.MethodType(function, self)
    return _compiled_function, (target, _C.settings_of(compiled))


def _with_compiled_call(cls, compile_function):
    """The class itself, as torch.compile gives it: calls of its objects are compiled."""
    function = getattr(cls, "__call__", None)
    if isinstance(function, types.FunctionType):
        cls.__call__ = functools.update_wrapper(compile_function(function), function)
    return cls


def _check(mode, backend, options, dynamic):
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    for key in options or {}:
        if key not in _OPTIONS and isinstance(backend, str) and backend in OWN:
            raise RuntimeError(f"Unexpected optimization option {key}, known options are {list(_OPTIONS)}")
    if dynamic not in (None, True, False):
        raise TypeError(f"dynamic is None, True or False, not {dynamic!r}")


def _checked_runs(options):
    """How often eager runs beside a compiled graph: 0 never, -1 the first time, n every n-th time."""
    check = (options or {}).get("check", os.environ.get("MAGNETO_CHECK") or "off")
    known = {"off": 0, "first": -1, "every": 1}.get(check, check)
    if isinstance(known, str) and known.isdecimal():
        known = int(known)
    if isinstance(known, bool) or not isinstance(known, int) or known < -1 or (known < 1 and known is check):
        raise RuntimeError(f"check is 'first', 'every', 'off' or a number of runs, not {check!r}")
    return known


def _function_of(target):
    """The Python function behind a callable, and what it is bound to; no function: calls of that object."""
    if _C.is_compiled(target):
        return _C.target_of(target)
    if isinstance(target, torch.nn.Module):
        return None, original_of(target) or target
    if isinstance(target, types.FunctionType):
        return target, None
    if isinstance(target, types.MethodType):
        function, self = target.__func__, target.__self__
        if _C.is_compiled(function) and _C.target_of(function)[1] is None:
            function, _ = _C.target_of(function)
        if isinstance(function, types.FunctionType):
            return function, self
    call = getattr(type(target), "__call__", None)
    if not isinstance(call, types.FunctionType) or isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return _calling(target), None
    return call, target


def _calling(target):
    """A Python function around what is written in C: torch.nn.functional.gelu, functools.partial, a scripted function."""

    def call(*args, **kwargs):
        return target(*args, **kwargs)

    name = getattr(target, "__name__", type(target).__name__)
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)
    return call


def explain(model):
    """``explain(f)(*args)`` runs f once, compiled for this call, and tells what happened: graphs, breaks, guards, kernels.

    ``.code`` of the answer shows the text of every stage, from the graph to the source of the kernels.
    """
    if not callable(model) or isinstance(model, type):
        raise TypeError(f"magneto.explain needs a function, method or nn.Module, not {type(model).__name__}")
    function, self = _function_of(model)
    compiled = _C.compile_function(function, self, False, 8, None, "magneto", keeps_texts=True)

    def run(*args, **kwargs):
        compiled(*args, **kwargs)
        return _C.report_of(compiled)

    return run


def mark_dynamic(tensor, *dimensions, min=None, max=None):
    """Sizes of these dimensions change from call to call: they are symbols from the first call on.

    ``torch._dynamo.mark_dynamic`` has the same effect. Sizes that are not between ``min`` and ``max`` are served, too.
    """
    for dimension in dimensions:
        torch._dynamo.mark_dynamic(tensor, dimension, min=min, max=max)


def maybe_mark_dynamic(tensor, *dimensions):
    """The same, for sizes that may turn out to be fixed."""
    for dimension in dimensions:
        torch._dynamo.maybe_mark_dynamic(tensor, dimension)


def mark_static(tensor, *dimensions):
    """Sizes of these dimensions, or all, are never symbols: another size is another graph."""
    for dimension in dimensions or range(tensor.ndim):
        torch._dynamo.mark_static(tensor, dimension)


def error_on_graph_break(error):
    """A context manager and decorator: inside of it a break is an error that says where, why and what to do (``error=True``), or is none (False).

    ``torch._dynamo.error_on_graph_break`` is the same. ``fullgraph=True`` is stronger: it holds for the whole function.
    """
    return torch._dynamo.error_on_graph_break(error)


def report():
    """Everything that happened in this process: .graphs, .breaks, .recompiles, .fallbacks; str() is readable."""
    return _C.report()


def reset():
    """Forgets all that was compiled, and the report."""
    _C.reset()


def substitute_in_graph(original, *, can_constant_fold_through=False, skip_signature_check=False):
    """A decorator: in what is compiled from now on, the decorated function is called in the place of ``original``.

    For a function that cannot be captured, with another one that gives the same results and can. It may call ``original``
    itself. The signature is torch.compiler.substitute_in_graph's; results of a function without tensors are constants anyway.
    """
    del can_constant_fold_through

    def decorate(replacement):
        if not callable(original) or not callable(replacement):
            raise TypeError("magneto.substitute_in_graph needs two functions")
        if not skip_signature_check:
            _compare_signatures(original, replacement)
        _C.substitute(original, replacement)
        return replacement

    return decorate


def _compare_signatures(original, replacement):
    try:
        a, b = (inspect.signature(function).parameters.values() for function in (original, replacement))
    except ValueError:  # a C function that does not tell
        return
    if [(p.name, p.kind) for p in a] != [(p.name, p.kind) for p in b]:
        raise TypeError(f"{replacement.__name__} cannot stand for {original.__name__}: its parameters are others "
                        "(skip_signature_check=True lets it)")
