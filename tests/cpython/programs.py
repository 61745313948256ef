"""Small functions that between them use every kind of instruction. Each takes nothing and returns something that compares
by its repr; LOG collects side effects in order."""
import sys

LOG = []


def log(value):
    LOG.append(value)
    return value


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, traceback):
        LOG.append(("exit", self.name, kind.__name__ if kind else None, traceback.tb_lineno if traceback else None))
        return self.swallow


class Point:
    __slots__ = ("x", "y")
    __match_args__ = ("x", "y")

    def __init__(self, x, y=5):
        self.x, self.y = x, y

    def add(self, other, *, factor=1):
        return Point(self.x + other.x * factor, self.y + other.y)

    @property
    def norm(self):
        return self.x * self.x + self.y * self.y

    @classmethod
    def make(cls, x):
        return cls(x)

    @staticmethod
    def minus(a, b):
        return a - b

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __repr__(self):
        return f"Point({self.x},{self.y})"


class Shifted(Point):
    def add(self, other, *, factor=1):
        result = super().add(other, factor=factor)
        result.x += 100
        return result


class Finalized:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        LOG.append(("del", self.name))


def lines(traceback):
    while traceback:
        yield traceback.tb_lineno
        traceback = traceback.tb_next


def displays_and_operators():
    a, b, c = 1, 2.5, "x" * 3
    d = (a, b, c)
    e = [a, *d, b]
    g = {"a": a, **{"b": b}}
    s = {1, 2, *e[:2]}
    del a
    x, y, *z = e
    e[1:2] = [7, 8]
    h = a if False else b
    return d, e, g, sorted(map(str, s)), x, y, z, h, -b, not b, ~3, +b, b is None, 2 in e, b ** 2, {"k": 1, "l": 2}, e[::2]


def loops():
    total = 0
    for i in range(4):
        for j in (10, 20):
            if j == 20 and i == 2:
                continue
            total += i * j
            if total > 90:
                break
        else:
            total += 1
    while total > 50:
        total -= 7
        if total % 2:
            log(total)
    return total


def with_blocks():
    out = []
    with Manager("a") as a, Manager("b", True) as b:
        out.append(a.name + b.name)
        for i in [1, 2, 3]:
            with Manager(i):
                if i == 2:
                    raise ValueError("inner %d" % i)
                out.append(i)
    out.append("after")
    return out


def handlers():
    out = []
    for key in ("k", "missing", 3):
        try:
            value = {"k": 1}[key]
            out.append(value)
            out.append(value + "x")
        except KeyError as e:
            out.append(("key", str(e), e.__traceback__.tb_lineno))
            try:
                raise RuntimeError("second") from e
            except RuntimeError as second:
                out.append((repr(second.__cause__), repr(second.__context__)))
        except (TypeError, ValueError) as e:
            out.append(("type", e.__traceback__.tb_lineno, sys.exc_info()[1] is e))
        else:
            out.append("else")
        finally:
            out.append("finally")
    assert sys.exc_info() == (None, None, None)
    return out


def closures():
    n, seen = 10, []

    def add(k=1):
        nonlocal n
        n += k
        seen.append(n)
        return n
    ahead = lambda q: q + n
    add()
    add(5)
    x = ahead(2)
    n = n * 2
    add(k=3)
    return n, seen, x, add.__closure__[0].cell_contents


def comprehensions():
    base = 3
    total = sum(x * base for x in range(5) if x % 2)
    listed = [y + base for y in range(3)]
    mapped = {k: v for k, v in zip("ab", (1, 2))}
    unique = {z % 2 for z in listed}
    nested = [[i * j for j in range(i)] for i in range(4)]
    return total, listed, mapped, sorted(unique), nested, list(x for x in (y * base for y in listed)), any(q > 4 for q in listed)


def generators():
    def numbers(n):
        try:
            for i in range(n):
                got = yield i * 2
                if got:
                    LOG.append(("got", got))
        finally:
            LOG.append("closed")
        return "value"

    def delegating():
        value = yield from numbers(3)
        LOG.append(value)
        yield value

    def ends_early():
        yield 1
        raise StopIteration("early")
    g = numbers(5)
    out = [next(g), g.send("hi"), next(g)]
    try:
        g.throw(KeyError("thrown"))
    except KeyError as e:
        out.append(repr(e))
    h = numbers(2)
    next(h)
    h.close()
    try:
        list(ends_early())
    except RuntimeError as e:
        out.append((str(e), repr(e.__cause__)))
    return out, list(delegating())


def classes():
    p, q = Point(1), Shifted(2, y=3)
    r, w = p.add(q, factor=2), q.add(p, factor=4)
    z = Point.make(7)
    method = z.add
    out = [method(p).x, method(other=q, factor=3).x, Point.minus(9, 4), r.norm, w.x,
           (lambda *a, **k: (a, k))(1, *(2, 3), z=4, **{"y": 5})]
    z.x += 1
    z.y = [1, 2, 3]
    z.y[1:2] = [9, 9]
    z.y[0] -= 5
    del z.y[-1]
    out += [z.y, z.y[::2]]
    return out


def class_body():
    outer = "outer"

    class Made(Point):
        x: int = 3
        label = outer
        squares = [i * i for i in range(3)]

        def get(self):
            return self.label, __class__.__name__
    del outer
    return Made.__annotations__, Made.label, Made.squares, Made.get(Made), Made.__mro__[1].__name__


def raises_in_an_expression():
    a = [1, 2]
    b = {"n": 0}
    return (a[0] +
            a[1] / b["n"] +
            3)


def nested_calls():
    def inner(x, limit):
        s = 0
        for i in range(x):
            s += i
            if s > limit:
                raise OverflowError(s)
        return s

    def middle(x, limit=100):
        try:
            return inner(x, limit) + 1
        finally:
            LOG.append(("middle", x))
    out = []
    for v in (3, 6):
        try:
            out.append(middle(v, limit=9) * 2)
        except OverflowError as e:
            out.append(e.args)
    return out


def strings():
    n, s = 3.14159, "ab"
    return f"{n:.2f} {s!r:>6} {s}{n!s} {len(s):{n:.0f}d} {s!a}", "%s-%d" % (s, 4)


def introspection():
    a, b = 1, "two"
    names = sorted(locals())
    frame = sys._getframe()
    where = [frame.f_lineno, frame.f_code.co_name, frame.f_back is not None, frame.f_lasti]
    view = dict(sys._getframe().f_locals)
    return names, where, sorted(view), view["a"], view["b"]


def unbound():
    out = []
    try:
        if LOG is None:
            x = 1
        return x
    except UnboundLocalError as e:
        out.append((str(e), e.name))

    def inner():
        return later
    try:
        inner()
    except NameError as e:
        out.append((str(e), e.name))
    later = 1
    try:
        undefined_name
    except NameError as e:
        out.append((str(e), e.name))
    try:
        del undefined_local
        undefined_local = 1
    except UnboundLocalError as e:
        out.append(str(e))
    return out


def booleans():
    a, b, c = [] or 0 or "x", 1 and 2 and None, None
    out = [a, b, 3 < 4 < 5, 3 < 2 < 5, a if c is None else b, a is not None]
    if not (a and not b) or c:
        out.append("no")
    elif a == "x" != b:
        out.append("yes")
    while True:
        if len(out) > 8:
            break
        out.append(len(out))
    while c is None:
        c = a
    while c is not None:
        c = None
    return out


def far_jumps():
    x, out = 0, []
    for i in range(2):
        x = x + 1; x = x + 2; x = x + 3; x = x + 4; x = x + 5; x = x + 6; x = x + 7; x = x + 8; x = x + 9; x = x + 10
        x = x + 1; x = x + 2; x = x + 3; x = x + 4; x = x + 5; x = x + 6; x = x + 7; x = x + 8; x = x + 9; x = x + 10
        x = x + 1; x = x + 2; x = x + 3; x = x + 4; x = x + 5; x = x + 6; x = x + 7; x = x + 8; x = x + 9; x = x + 10
        x = x + 1; x = x + 2; x = x + 3; x = x + 4; x = x + 5; x = x + 6; x = x + 7; x = x + 8; x = x + 9; x = x + 10
        try:
            out.append(x)
            out.append(out[i * 3])
        except IndexError:
            out.append(-1)
    return x, out


def patterns():
    out = []
    for v in ([1, 2], (3, 4, 5), "str", {"k": 7, "m": 8}, 9, Point(1, 2), Shifted(4, y=6), 2.5):
        match v:
            case [a, b]: out.append((a, b))
            case (a, *rest): out.append((a, rest))
            case {"k": z, **others}: out.append((z, others))
            case int(i): out.append(("int", i))
            case Point(1, y): out.append(("point", y))
            case Point(x=a, y=6): out.append(("named", a))
            case str(): out.append("str")
            case _: out.append("other")
    return out


def imports():
    import math
    import os.path as path
    from collections import OrderedDict as Ordered
    try:
        from collections import nothing_of_that_name
    except ImportError as e:
        error = type(e).__name__, e.name
    return math.floor(2.7), list(Ordered(a=1)), path.join("a", "b"), error


def exception_groups():
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as e:
        out.append(len(e.exceptions))
    except* (TypeError, KeyError) as e:
        out.append(len(e.exceptions))
    try:
        try:
            raise ExceptionGroup("outer", [ValueError(1), ExceptionGroup("inner", [OSError(2), KeyError(3)])])
        except* OSError:
            raise RuntimeError("new")
        except* ValueError:
            pass
    except BaseExceptionGroup as e:
        out.append(repr(e))
    try:
        raise ValueError("naked")
    except* ValueError as e:
        out.append(repr(e))
    return out


def reraises():
    def level(n):
        try:
            if n == 0:
                raise ZeroDivisionError("deep")
            level(n - 1)
        except ZeroDivisionError:
            if n == 2:
                LOG.append("again")
            raise
    with Manager("outer"):
        level(3)


def finalizers():
    a = Finalized(1)
    b = [Finalized(2), Finalized(3)]
    a = Finalized(4)
    b.pop(0)
    for q in [Finalized(5)]:
        c = q
    del q
    c = None
    (Finalized(6), Finalized(7))
    return len(b)


def coroutines():
    class Pause:
        def __await__(self):
            yield "pause"
            return "paused"

    class Manager:
        async def __aenter__(self):
            LOG.append("aenter")
            return self

        async def __aexit__(self, *exc):
            LOG.append(("aexit", exc[0]))
            return False

    async def numbers(n):
        for i in range(n):
            await Pause()
            yield i

    async def double(x):
        await Pause()
        if x == 3:
            raise LookupError(x)
        return x * 2

    async def main():
        out = [await double(1)]
        async with Manager() as m:
            async for v in numbers(3):
                out.append(v)
        out += [q async for q in numbers(2)]
        try:
            await double(3)
        except LookupError as e:
            out.append((repr(e), list(lines(e.__traceback__))))
        try:
            await 3
        except TypeError as e:
            out.append(str(e))
        return out
    coroutine, steps = main(), 0
    while True:
        try:
            LOG.append(coroutine.send(None))
            steps += 1
        except StopIteration as e:
            return e.value, steps


def deep_recursion():
    def down(n):
        if n == 0:
            raise RecursionError("stop")
        return down(n - 1) + 1
    try:
        return down(20)
    except RecursionError as e:
        return str(e), len(list(lines(e.__traceback__)))


def finally_returns():
    for i in range(3):
        try:
            if i == 1:
                return "one"
        finally:
            LOG.append(i)
            if i == 0:
                continue
    return "never"


def arguments(*args, a=1, **kw):
    def full(p, /, q, r=3, *v, s, t=4, **k):
        return p, q, r, v, s, t, sorted(k.items())
    out = [full(1, 2, s=5), full(1, q=2, s=6, u=7), full(1, 2, 3, 4, 5, s=8, t=9), full(*(1, 2), **{"s": 3, "w": 1}),
           full(*[1], *iter((2,)), **{"s": 1}, t=2), full(*range(2), s=1)]
    for wrong in (lambda: full(1, 2), lambda: full(**None), lambda: full(*None), lambda: full(1, **{"s": 1}, **{"s": 2}),
                  lambda: full(1, *3), lambda: full(1, **3, s=1)):
        try:
            wrong()
        except TypeError as e:
            out.append(str(e))
    return out, dict(a=1, b=2), sorted([3, 1, 2], key=lambda x: -x, reverse=False), args, a, kw


def unpacking():
    out = []
    for give in ((1, 2), (1, 2, 3), (1,), 5, iter([4, 5]), "ab"):
        try:
            a, b = give
            out.append((a, b))
        except (TypeError, ValueError) as e:
            out.append(str(e))
        try:
            first, *middle, last = give
            out.append((first, middle, last))
        except (TypeError, ValueError) as e:
            out.append(str(e))
    return out


def globals_change():
    global made_global
    made_global = 3
    out = [made_global]
    del made_global
    try:
        made_global
    except NameError as e:
        out.append(str(e))
    return out


def bad_raises():
    out = []
    for raised, cause in ((3, None), (ValueError, 3), (ValueError, KeyError), (ValueError("v"), None), (KeyError, KeyError("c"))):
        try:
            raise raised from cause
        except BaseException as e:
            out.append((repr(e), repr(e.__cause__), e.__suppress_context__))
    try:
        raise
    except RuntimeError as e:
        out.append(str(e))
    try:
        try:
            raise ValueError
        except 3:
            pass
    except TypeError as e:
        out.append((str(e), repr(e.__context__)))
    try:
        with 3:
            pass
    except TypeError as e:
        out.append(str(e))
    return out


def locals_spread_in_calls():
    class Mapping:
        def keys(self):
            return ["scale", "rest"]

        def __getitem__(self, key):
            return log(key) * 2

    def take(a, b=0, *c, scale=1, rest=2):
        return a, b, c, scale, rest
    values, mapping, text, missing = [Finalized("v"), 2, 3], Mapping(), "xy", 4
    out = [take(*values, **mapping)[1:], take(*text, **mapping), take(*values[1:], *text), len(values)]
    for spread in (lambda: take(*missing), lambda: take(**missing), lambda: take(1, **mapping, **mapping)):
        try:
            spread()
        except TypeError as e:
            out.append(str(e).replace("locals_spread_in_calls.<locals>.", ""))
    kept = values
    values = take(*kept, *kept)
    return out, len(values), kept[1:]


def annotated():
    out = []

    def inner(a: int, *rest: tuple, k: str = "k") -> list:
        return a, rest, k

    class Record:
        x: int = 1
        if not out:
            y: str
    out.append((inner(1), inner.__annotations__, inner.__kwdefaults__, Record.__annotations__))
    try:
        class Broken:
            z: missing_type
        out.append(Broken.__annotations__)
    except NameError as e:
        out.append((str(e), e.name))
    return out


def managers_that_miss_a_method():
    class Half:
        def __enter__(self):
            return self

    class Other:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc):
            pass
    out = []
    for manager in (Half(), Other(), 3):
        try:
            with manager:
                out.append("entered")
        except (TypeError, AttributeError) as e:
            out.append(str(e))

    async def enter(manager):
        async with manager:
            out.append("entered")
    for manager in (Half(), Other(), 3):
        try:
            enter(manager).send(None)
        except (TypeError, AttributeError, StopIteration) as e:
            out.append((type(e).__name__, str(e)))
    return out


if sys.version_info >= (3, 14):
    exec("""
def templates():
    x, spec = 3, ".2f"
    plain, wide = t"a {x} b{x!r:>{x}}", t"{x + 1:{spec}}{Point(2)!s}"
    parts = [(i.value if i.expression != "Point(2)" else i.conversion, i.expression, i.conversion, i.format_spec)
             for template in (plain, wide) for i in template.interpolations]
    try:
        t"{x:{1 / 0}}"
    except ZeroDivisionError as e:
        parts.append(list(lines(e.__traceback__)))
    joined = t"" + t"{x=}"
    return plain.strings, wide.strings, parts, joined.strings, joined.values
""")


PROGRAMS = [value for name, value in list(globals().items())
            if callable(value) and not isinstance(value, type) and name not in ("log", "lines")]
CLASSES = [Manager, Point, Shifted, Finalized]
