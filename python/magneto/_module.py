"""Modules stay modules: a compiled module shares the very state of the original and is an instance of its class.

    c = compile(m)        c.__dict__ is m.__dict__; type(c) is a class made for c alone, derived from type(m)

That class has a ``__call__`` of its own, the compiled call of m. It is for c, that is: for the object that has m's state.
Whatever else comes to be an object of the class (a slice of a Sequential, ``type(c)(...)``, a replica) has a state of its
own and is called as it is. For all who look, c is an object of m's class: ``c.__class__`` is ``type(m)``, and who changes
it (parametrizations, FSDP) changes it for both.
"""

import abc
import copy
import functools

from . import _C

_real_class = object.__dict__["__class__"]


def original_of(module):
    """The module that a compiled one was made of; None: it is none."""
    original = getattr(type(module), "__magneto_original__", None)  # a subclass has it, too, but not the state
    return original if original is not None and module.__dict__ is original.__dict__ else None


def settings_of(compiled):
    return _C.settings_of(type(compiled).__dict__["__call__"])


def compiled_module(module, settings):
    compiled = object.__new__(_compiled_class(module, settings))
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


def _compiled_class(module, settings):
    cls = type(module)
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__slots__": (),
        "__init__": functools.update_wrapper(_initialise_plain(cls.__init__), cls.__init__),
        "__call__": _C.compile_function(None, module, *settings),
        "__magneto_original__": module,
        "__magneto_class__": cls,
    }
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            name = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if name not in ("__dict__", "__weakref__"):
                body.setdefault(name, _shared_slot(base.__dict__[name]))
    # The user's metaclass and __init_subclass__ have no part in this: they may count the classes they see.
    maker = abc.ABCMeta if isinstance(cls, abc.ABCMeta) else type
    bases = (cls,) if issubclass(cls, CompiledModule) else (CompiledModule, cls)
    return maker.__new__(type(cls), cls.__name__, bases, body)


def _initialise_plain(initialise):
    """__init__ for type(c)(...): makes an object of the plain class."""

    def __init__(self, *args, **kwargs):
        if not _becomes_plain(self):
            return initialise(self, *args, **kwargs)  # of a user's subclass
        return self.__init__(*args, **kwargs)

    return __init__


def _shared_slot(member):
    def owner(self):
        original = original_of(self)
        return self if original is None else original

    return property(lambda self: member.__get__(owner(self)), lambda self, value: member.__set__(owner(self), value),
                    lambda self: member.__delete__(owner(self)))


def _becomes_plain(module):
    """An object of a compiled class with a state of its own becomes one of the plain class."""
    plain = type(module).__dict__.get("__magneto_class__")
    if plain is None or original_of(module) is not None:
        return False
    _real_class.__set__(module, plain)
    return True


def _rebuild(module, *settings):
    from . import compile

    return compiled_module(module, settings) if settings else compile(module)


class CompiledModule:
    """What compiled modules have in common, before their own class in the order of look-up. It has a dict, as modules
    have: objects change between their class and a compiled one."""

    def __init_subclass__(cls, **kwargs):
        if "__magneto_original__" not in cls.__dict__:
            super().__init_subclass__(**kwargs)

    @property
    def __class__(self):
        original = original_of(self)
        return type(self).__dict__.get("__magneto_class__", type(self)) if original is None else type(original)

    @__class__.setter
    def __class__(self, cls):
        original, cls = original_of(self), cls.__dict__.get("__magneto_class__", cls)
        if original is None:
            return _real_class.__set__(self, cls)
        original.__class__ = cls
        _real_class.__set__(self, _compiled_class(original, settings_of(self)))

    def __getattr__(self, name):
        if type(self.__magneto_original__) is not self.__magneto_class__ and original_of(self) is not None:
            return getattr(self.__magneto_original__, name)  # it was given another class
        return super().__getattr__(name)

    def __reduce_ex__(self, protocol):
        original = original_of(self)
        if original is not None:
            return _rebuild, (original, *settings_of(self))
        if _becomes_plain(self):
            return self.__reduce_ex__(protocol)
        return super().__reduce_ex__(protocol)

    def __copy__(self):
        original = original_of(self)
        if original is not None:
            return _compiled_if_module(copy.copy(original), settings_of(self))
        if _becomes_plain(self):
            return copy.copy(self)
        make, args, state, *_ = self.__reduce_ex__(4)
        twin = make(*args)
        twin.__setstate__(state)
        return twin

    def __deepcopy__(self, memo):
        original = original_of(self)
        if original is not None:
            twin = copy.deepcopy(original, memo)
            return memo.get(id(self)) or _compiled_if_module(twin, settings_of(self))  # one if it holds itself, too
        if _becomes_plain(self):
            return copy.deepcopy(self, memo)
        make, args, state, *_ = self.__reduce_ex__(4)
        memo[id(self)] = twin = make(*copy.deepcopy(args, memo))
        twin.__setstate__(copy.deepcopy(state, memo))
        return twin


def _compiled_if_module(module, settings):
    import torch

    return compiled_module(module, settings) if isinstance(module, torch.nn.Module) else module
