"""Adversarial guard cases: one thing outside the function changes in a way that is easy to overlook.

A case is a source text with `f`, a call of `setup()`, one record, then `change()`, and f must answer as eager does.
Most are from the history of this field: each was once believed to be covered and was not.
"""

import collections

Case = collections.namedtuple("Case", "name source change")

COMMON = """
import abc, collections, enum, functools, os, random, sys, time, types, weakref
import numpy as np
import torch
class O: pass
o = O()
class A1:
    k = 2
    def go(s, x): return x + 1
class A2(A1):
    def go(s, x): return x * 3
class E(enum.Enum):
    A = 1
    B = 2
"""

CASES = []


def case(name, source, change):
    CASES.append(Case(name, COMMON + source, change))


case("a list that is a default changes inside", """
def f(x, l=[1]): return x * l[0]
""", "f.__defaults__[0][0] = 2")

case("a keyword default changes inside its dict", """
def f(x, *, q=2): return x * q
""", "f.__kwdefaults__['q'] = 3")

case("the defaults are replaced by equal ones of another type", """
def f(x, n=2): return x // n if isinstance(n, int) else x / n
""", "f.__defaults__ = (2.0,)")

case("the function gets other code", """
def f(x): return x + 1
def other(x): return x + 2
""", "f.__code__ = other.__code__")

case("a callee gets other code", """
def helper(x): return x + 5
def other(x): return x + 2
def f(x): return helper(x)
""", "helper.__code__ = other.__code__")

case("a class attribute changes", """
a = A1()
def f(x): return x * a.k
""", "A1.k = 7")

case("an instance attribute hides a method", """
a = A1()
def f(x): return a.go(x)
""", "a.go = lambda x: x - 9")

case("an object gets another class", """
a = A1()
def f(x): return a.go(x)
""", "a.__class__ = A2")

case("a cell changes", """
def make():
    c = 1
    def f(x): return x * c
    def put(v):
        nonlocal c
        c = v
    return f, put
f, put = make()
""", "put(4)")

case("the order of a dict changes", """
o.d = {'a': 1, 'b': 2}
def f(x): return x * float(list(o.d)[0] == 'a')
""", "o.d['a'] = o.d.pop('a')")

case("the order of an OrderedDict changes", """
od = collections.OrderedDict(a=1, b=2)
def f(x): return x * float(list(od)[0] == 'a')
""", "od.move_to_end('a')")

case("a set gains a member that was asked for", """
o.s = {'z'}
def f(x): return x + 1 if 'q' in o.s else x - 1
""", "o.s.add('q')")

case("a set grows", """
o.s = {'z'}
def f(x): return x * len(o.s)
""", "o.s.add('q')")

case("a slot changes", """
class Slot:
    __slots__ = ('v',)
s = Slot()
s.v = 1
def f(x): return x * s.v
""", "s.v = 3")

case("an instance without a materialised dict changes", """
class Plain:
    def __init__(self): self.v, self.w = 1, 2
p = Plain()
def f(x): return x * p.v
""", "p.v = 3")

case("what a property reads changes", """
class P:
    def __init__(self): self._v = 1
    @property
    def v(self): return self._v
p = P()
def f(x): return x * p.v
""", "p._v = 3")

GETATTR = """
class G:
    def __init__(self): self.d = {'v': 1}
    def __getattr__(self, n):
        try: return self.__dict__['d'][n]
        except KeyError: raise AttributeError(n)
g = G()
"""
case("what __getattr__ reads changes", GETATTR + "def f(x): return x * g.v", "g.d['v'] = 3")
case("an attribute that was missing appears behind __getattr__", GETATTR + "def f(x): return x * getattr(g, 'nothere', 2)",
     "g.d['nothere'] = 3")

case("an attribute appears", "def f(x): return x * (2 if hasattr(o, 'zz') else 1)", "o.zz = 1")
case("a list element changes", "o.l = [1, 2]\ndef f(x): return x * o.l[1]", "o.l[1] = 9")
case("a list inside a tuple changes", "o.t = ([1], 2)\ndef f(x): return x * o.t[0][0]", "o.t[0][0] = 9")
case("a slice of a list grows", "o.l = [1, 2]\ndef f(x): return x * sum(o.l[1:])", "o.l.append(9)")
case("a generator over a list sees more", "o.l = [1, 2]\ndef f(x): return x * (2 if any(v > 5 for v in o.l) else 1)", "o.l.append(9)")
case("an environment variable is set", """
os.environ.pop('REC_T', None)
def f(x): return x * int(os.environ.get('REC_T', '1'))
""", "os.environ['REC_T'] = '4'")
case("random numbers go on", "def f(x): return x * random.random()", "pass")
case("an ABC accepts another class", """
class Base(abc.ABC): pass
class Reg: pass
r = Reg()
def f(x): return x * (2 if isinstance(r, Base) else 1)
""", "Base.register(Reg)")
case("a key that was missing appears", """
o.d = {}
def f(x):
    try: return x * o.d['k']
    except KeyError: return x - 1
""", "o.d['k'] = 3")
case("zero becomes minus zero", "o.f = 0.0\ndef f(x): return x * o.f", "o.f = -0.0")
case("an int in a tuple becomes an equal float", "o.t = (2,)\ndef f(x): return x.long() // o.t[0]", "o.t = (2.0,)")
case("an int becomes an equal bool", "o.v = 1\ndef f(x): return x * (3 if type(o.v) is int else 4)", "o.v = True")
case("an attribute of a function changes", "def helper(x): return x\nhelper.flag = 1\ndef f(x): return x * helper.flag", "helper.flag = 6")
case("a function gets its first attribute", "def helper(x): return x\ndef f(x): return x * getattr(helper, 'flag', 2)", "helper.flag = 6")
case("the keywords of a partial change", """
def t(x, *, q=2): return x * q
p = functools.partial(t, q=2)
def f(x): return p(x)
""", "p.keywords['q'] = 8")
case("the state of a descriptor changes", """
class Desc:
    c = 1
    def __get__(self, thing, owner): return self.c
class H: f = Desc()
h = H()
def f(x): return x * h.f
""", "H.__dict__['f'].c = 3")
case("a key appears in front of __missing__", """
class Miss(dict):
    def __missing__(self, k): return 5
m = Miss()
def f(x): return x * m['k']
""", "m['k'] = 2")
case("a defaultdict holds another value", """
d = collections.defaultdict(lambda: 4)
def f(x): return x * d['k']
""", "d['k'] = 2")
case("an enum member is replaced", "o.e = E.A\ndef f(x): return x * (2 if o.e is E.A else 3)", "o.e = E.B")
case("a module in sys.modules is replaced", """
sys.modules['magneto_fake'] = types.SimpleNamespace(v=1)
def f(x):
    import magneto_fake
    return x * magneto_fake.v
""", "sys.modules['magneto_fake'] = types.SimpleNamespace(v=5)")
case("an object behind a weak reference changes", """
a = A1()
w = weakref.ref(a)
def f(x): return x * w().k
""", "a.k = 11")
case("an iterator outside goes on", "o.it = iter([1, 2, 3, 4, 5, 6, 7, 8])\ndef f(x): return x * next(o.it)", "pass")
case("an attribute of a parameter changes", """
par = torch.nn.Parameter(torch.ones(3))
par.flag = 1
def f(x): return x * par.flag
""", "par.flag = 5")
case("a parameter gains a gradient", """
par = torch.nn.Parameter(torch.ones(3))
def f(x): return x if par.grad is None else x * 2
""", "par.grad = torch.ones(3)")
case("the dict of an object is replaced", "o.v = 1\ndef f(x): return x * o.v", "o.__dict__ = {'v': 3}")
case("a string grows", "o.s = 'ab'\ndef f(x): return x * len(o.s)", "o.s = 'abc'")
case("a global changes", "gv = 1\ndef f(x): return x * gv", "global gv\n    gv = 2")
case("a global hides a builtin", "def f(x): return x * abs(-2)", "global abs\n    abs = lambda v: 9")
case("an operand of __eq__ changes", """
class Eq:
    def __init__(self, v): self.v = v
    def __eq__(self, q): return self.v == q.v
o.a, o.b = Eq(1), Eq(1)
def f(x): return x * (2 if o.a == o.b else 1)
""", "o.b.v = 2")
case("an attribute of a base class changes", "def f(x): return x * A2.k", "A1.k = 3")
case("an element of a numpy array changes", "o.a = np.ones(3)\ndef f(x): return x * float(o.a[0])", "o.a[0] = 5")
case("the clock goes on", "def f(x): return torch.tensor(float(time.perf_counter() > o.t))\no.t = 0", "o.t = float('inf')")
case("the bases of a class change", """
class B1: k = 1
class B2: k = 6
class C(B1): pass
def f(x): return x * C.k
""", "C.__bases__ = (B2,)")
case("a metaclass attribute changes", """
class M(type): k = 1
class C(metaclass=M): pass
def f(x): return x * C.k
""", "M.k = 4")
case("a deque outside changes", "o.d = collections.deque([1, 2])\ndef f(x): return x * o.d[0]", "o.d.rotate(1)")
case("a bytearray outside changes", "o.b = bytearray(b'ab')\ndef f(x): return x * o.b[0]", "o.b[0] = 3")
case("a cached property is refreshed", """
class C:
    v = 1
    @functools.cached_property
    def p(self): return self.v
c = C()
def f(x): return x * c.p
""", "c.v = 8\n    del c.p")
case("an lru_cache is cleared after its input changed", """
o.v = 1
@functools.lru_cache
def get(): return o.v
def f(x): return x * get()
""", "o.v = 5\n    get.cache_clear()")
case("a frozen set in a global is replaced", "fs = frozenset('a')\ndef f(x): return x + ('b' in fs)", "global fs\n    fs = frozenset('ab')")
case("a tensor global changes its storage", "w = torch.ones(3)\ndef f(x): return x * w", "w.data = torch.full((3,), 4.0)")
case("a tensor global becomes a transposed view", "w = torch.arange(4.).view(2, 2)\ndef f(x): return x.sum() * w, w.stride()",
     "w.data = torch.arange(4.).view(2, 2).t()")
