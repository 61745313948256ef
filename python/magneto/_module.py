"""Modules stay modules: a compiled module shares the very state of the original and is an instance of its class."""


def _rebuild(module):
    from . import compile

    return compile(module)


def compiled_module(module, compile_function):
    """An object of a subclass of type(module) with the same __dict__ and a compiled __call__."""
    cls = type(module)
    module = getattr(module, "__magneto_original__", module)
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": compile_function(cls.__call__, module),
        "__magneto_original__": module,
        "__reduce_ex__": lambda self, protocol: (_rebuild, (module,)),
        "__slots__": (),
    }
    compiled = object.__new__(type(cls)(cls.__name__, (cls,), body))
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled
