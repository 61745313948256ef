"""What recordings enter in the place of functions of torch whose own code cannot be recorded yet."""

import collections
import itertools
import operator

import torch
from torch.autograd.graph import _engine_run_backward
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint, noop_context_fn

from . import _C

try:
    from torch._higher_order_ops.associative_scan import associative_scan
except ImportError:  # a version of torch that keeps it elsewhere
    associative_scan = None


def _scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """associative_scan, one step after the other: torch's own applies vmap, or compiles."""
    leaves, spec = pytree.tree_flatten(xs)
    alike = bool(leaves) and all(isinstance(leaf, torch.Tensor) and leaf.shape == leaves[0].shape for leaf in leaves)
    fits = alike and type(dim) is int and -leaves[0].ndim <= dim < leaves[0].ndim and leaves[0].shape[dim] > 0
    if not fits or combine_mode != "generic" and not (combine_mode == "pointwise" and all(leaf.is_cuda for leaf in leaves)):
        return associative_scan(combine_fn, xs, dim, reverse, combine_mode)  # which says why not
    dim %= leaves[0].ndim
    slices = [torch.unbind(leaf, dim) for leaf in leaves]
    steps = range(len(slices[0]))
    made = {}
    for step in reversed(steps) if reverse else steps:
        now = pytree.tree_unflatten([slice[step] for slice in slices], spec)
        last = combine_fn(last, now) if made else now
        made[step] = pytree.tree_leaves(last)
    rows = [torch.stack([made[step][k] for step in steps]) for k in range(len(leaves))]
    return pytree.tree_unflatten([row.movedim(0, dim) for row in rows], spec)


def _one_hot(tensor, num_classes=-1):
    """one_hot, as torch computes it; what it reads of the numbers is asserted."""
    if type(num_classes) is not int or num_classes <= 0 or tensor.dtype is not torch.int64 or tensor.numel() == 0:
        return one_hot(tensor, num_classes)
    if tensor.is_cpu:
        torch._assert_async(tensor.min() >= 0, "Class values must be non-negative.")
        torch._assert_async(tensor.max() < num_classes, "Class values must be smaller than num_classes.")
    return torch.zeros(*tensor.shape, num_classes, dtype=tensor.dtype, device=tensor.device).scatter_(-1, tensor.unsqueeze(-1), 1)


def _exit_region(self, exc_type, exc_value, traceback):
    """record_function.__exit__, for a program without tensor subclasses."""
    if self.run_callbacks_on_exit:
        if self.record is None:
            raise AssertionError("Expected record to be set")
        torch.ops.profiler._record_function_exit(self.record)


def _free_history(tensor):
    """The graph of the tensor has been freed by a backward that ran inside of the program."""
    _C.free_history(tensor)


def _log_again(logger, level, message, args, path, line, function, extra):
    """logger._log of a replay: as of the line that was recorded."""
    logger.handle(logger.makeRecord(logger.name, level, path, line, message, args, None, function, extra))


def _shown(value, conversion, spec):
    """{value!s:spec} of an f-string; the conversion as FORMAT_VALUE has it. Replays make texts of numbers that change."""
    return format((value, str(value), repr(value), ascii(value))[conversion] if conversion else value, spec)


def _joined(separator, *pieces):
    """separator.join(pieces)"""
    return separator.join(pieces)


def _filled(pattern, values):
    """pattern % values"""
    return pattern % values


def _formatted(names, pattern, *values):
    """pattern.format(...), the last values by these names"""
    positional = len(values) - len(names)
    return pattern.format(*values[:positional], **dict(zip(names, values[positional:])))


def _vars(object, /):
    """vars(object) is object.__dict__; of a call without one the frame of the program is asked."""
    return object.__dict__ if hasattr(object, "__dict__") else vars(object)


def _count_elements(mapping, iterable):
    """What collections.Counter calls, one element after the other; it asks each for its hash once."""
    elements = iter(iterable)
    for element in elements:
        if not isinstance(element, (str, int, float, tuple, type(None), type, torch.dtype, torch.Tensor)):
            return collections._count_elements(mapping, itertools.chain((element,), elements))
        mapping[element] = mapping.get(element, 0) + 1


def _groupby(iterable, key=None):
    """itertools.groupby, as a generator."""
    return _groups(iter(iterable), key)


def _groups(source, key):
    ahead = []  # the key and the element that begin the next group

    def members(name, first):
        yield first
        for element in source:
            found = element if key is None else key(element)
            if found is not name and found != name:
                ahead.append((found, element))
                return
            yield element

    for element in source:
        ahead.append((element if key is None else key(element), element))
        while ahead:
            name, first = ahead.pop()
            group = members(name, first)
            yield name, group
            for _ in group:  # what the caller has left of it
                pass


def _tee(iterable, n=2):
    """itertools.tee, as generators over one list."""
    if type(n) is not int or n < 0:
        return itertools.tee(iterable, n)  # which refuses
    source, seen = iter(iterable), []

    def walk():
        for at in itertools.count():
            if at == len(seen):
                try:
                    seen.append(next(source))
                except StopIteration:
                    return
            yield seen[at]

    return tuple(walk() for _ in range(n))


def _checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default", debug=False,
                early_stop=True, preserve_rng_state=True, **kwargs):
    """torch.utils.checkpoint.checkpoint: the backward of the graph computes again what stands between the marks."""
    has_gradient = any([isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args])
    if context_fn is not noop_context_fn or debug or use_reentrant is None or use_reentrant and (kwargs or not has_gradient):
        return checkpoint(function, *args, use_reentrant=use_reentrant, context_fn=context_fn, determinism_check=determinism_check,
                          debug=debug, early_stop=early_stop, preserve_rng_state=preserve_rng_state, **kwargs)
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    _C.enter_checkpoint()
    try:
        return function(*args, **kwargs)
    finally:
        _C.leave_checkpoint()


def _equal(a, b):
    """torch.equal, as a truth that the graph reads."""
    if a.dtype is not b.dtype or a.device != b.device:
        return equal(a, b)
    return a.shape == b.shape and (a == b).all().item()


def _allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """torch.allclose, as torch computes it."""
    return torch.isclose(a, b, rtol, atol, equal_nan).all().item()


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """x.new_tensor of numbers"""
    if isinstance(data, torch.Tensor) or requires_grad or pin_memory:
        return new_tensor(self, data, dtype=dtype, device=device, requires_grad=requires_grad)
    return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device)


def _grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
          is_grads_batched=False, materialize_grads=False):
    """torch.autograd.grad of tensors; the rest is torch's."""
    roots = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    leaves = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    given = grad_outputs if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,) * len(roots)
    usual = only_inputs and not is_grads_batched and not materialize_grads and len(given) == len(roots) and (
        grad_outputs is None or isinstance(grad_outputs, (tuple, list)) or len(roots) == 1)
    gradients = []
    for root, gradient in zip(roots, given):
        usual = usual and type(root) is torch.Tensor and root.requires_grad and root.layout is torch.strided
        if usual and gradient is None and root.numel() == 1:
            gradient = torch.ones_like(root, memory_format=torch.preserve_format)
        usual = usual and isinstance(gradient, torch.Tensor) and gradient.shape == root.shape
        usual = usual and gradient.dtype.is_complex == root.dtype.is_complex
        gradients.append(gradient)
    if not usual or not all([isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]):
        return grad(roots, leaves, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched, materialize_grads)
    keep = bool(create_graph if retain_graph is None else retain_graph)
    return _engine_run_backward(roots, tuple(gradients), keep, bool(create_graph), leaves, bool(allow_unused), accumulate_grad=False)


def _tensor_of_tensors(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """torch.tensor([a, b]) of tensors that are numbers; None: it is another call."""
    first = data[0] if type(data) in (list, tuple) and data else None
    if requires_grad or pin_memory or not isinstance(first, torch.Tensor):
        return None
    if any([
        not isinstance(each, torch.Tensor) or each.ndim or each.requires_grad or each.dtype is not first.dtype or each.device != first.device
        for each in data
    ]):
        return None
    return torch.stack([each.detach() for each in data]).to(device or torch.empty(0).device, dtype)


def _sum(values, /, start=0):
    """sum(...) of what a generator or a map gives, as far as it is ints and tensors; the rest C code adds, in its own way."""
    total = start
    if isinstance(start, (int, torch.Tensor)):
        for value in values:
            if not isinstance(value, (int, torch.Tensor)):
                return sum(itertools.chain((value,), values), total)
            total = total + value
        return total
    return sum(values, start)


def _get_items(of, *keys):
    """What operator.itemgetter(*keys) does, where there are several."""
    return tuple([of[key] for key in keys])


def _get_attributes(of, *paths):
    """operator.attrgetter(*paths)"""
    found = []
    for path in paths:
        value = of
        for name in path.split("."):
            value = getattr(value, name)
        found.append(value)
    return found[0] if len(found) == 1 else tuple(found)


def _call_method(of, name, /, *args, **kwargs):
    """operator.methodcaller(name, *args, **kwargs)"""
    return getattr(of, name)(*args, **kwargs)


equal, new_tensor, grad = torch.equal, torch.Tensor.new_tensor, torch.autograd.grad
one_hot = torch.nn.functional.one_hot
_C.substitute(one_hot, _one_hot)
_C.substitute(torch.autograd.profiler.record_function.__exit__, _exit_region)
_C.substitute(checkpoint, _checkpoint)
_C.substitute(vars, _vars)
_C.substitute(torch.autograd.grad, _grad)
_C.substitute(torch.equal, _equal)
_C.substitute(torch.Tensor.equal, _equal)
_C.substitute(torch.allclose, _allclose)
_C.substitute(torch.Tensor.allclose, _allclose)
_C.substitute(torch.Tensor.new_tensor, _new_tensor)
_C.substitute(collections._count_elements, _count_elements)
_C.substitute(itertools.groupby, _groupby)
_C.substitute(itertools.tee, _tee)
_C.substitute(operator.itemgetter.__call__, _get_items)
_C.substitute(operator.attrgetter.__call__, _get_attributes)
_C.substitute(operator.methodcaller.__call__, _call_method)
if associative_scan is not None:
    _C.substitute(associative_scan, _scan)
