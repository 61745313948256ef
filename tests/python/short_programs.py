"""Short programs, one for each thing that users do, against eager; which of them are not one graph, and why. Run by hand:

    python tests/python/short_programs.py [names]

INFERENCE is called three times with other numbers, TRAINED five times with a backward. Prints what is wrong (nothing should be), the breaks of
each program that has some, and how many have none.
"""

import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, random, re, sys, time, traceback, types, typing, warnings, inspect, string, json, io, os, abc, heapq, bisect, numbers, decimal, fractions, statistics, textwrap, logging, weakref
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
import torch.utils.checkpoint
import magneto
warnings.simplefilter("ignore")
INFERENCE, TRAINED = {}, {}


def inference(f):
    INFERENCE[f.__name__] = f
    return f


def trained(f):
    TRAINED[f.__name__] = f
    return f


x0 = lambda: torch.linspace(-1, 2, 12).view(3, 4)
lin = nn.Linear(4, 4)
class Cfg:
    a = 1
    def __init__(self): self.v = 2; self.items = []
cfg = Cfg()
@inference
def data_attr(x): return x.data * 2
@inference
def set_data(x):
    y = x * 2; y.data = x * 3; return y
@inference
def reg_hook(x):
    y = x * 2; y.requires_grad_(); return y
@inference
def reg_hook2(x):
    h = lin(x); h.register_hook(lambda g: g * 2); return h.sum()
@inference
def reg_hook_param(x):
    hd = lin.weight.register_hook(lambda g: g); y = lin(x); hd.remove(); return y
@inference
def retain(x):
    h = lin(x); h.retain_grad(); return h
@inference
def backward_in(x):
    h = lin(x).sum(); h.backward(); return h.detach()
@inference
def autograd_grad(x):
    x = x.detach().requires_grad_(); y = (x ** 2).sum(); return torch.autograd.grad(y, x)[0]
@inference
def autograd_grad2(x):
    y = lin(x).pow(2).sum(); g, = torch.autograd.grad(y, lin.weight, create_graph=True); return g.pow(2).sum()
@inference
def rnd(x): return x * random.random()
@inference
def rnd2(x): return x * random.randint(1, 5) + random.choice([1, 2])
@inference
def rnd3(x): return x * np.random.rand()
@inference
def numpy_rt(x): return torch.from_numpy(np.sin(x.numpy())) + 1
@inference
def numpy_rt2(x): return torch.as_tensor(x.detach().cpu().numpy() * 2)
@inference
def as_tensor(x): return torch.as_tensor([1.0, 2, 3, 4]) + x
@inference
def as_tensor2(x): return torch.as_tensor(x) + torch.asarray([1., 2, 3, 4])
@inference
def new_tensor(x): return x.new_tensor([1, 2, 3, 4]) + x
@inference
def lst_sort(x):
    l = [3, 1, 2]; l.sort(key=lambda v: -v); return x * l[0]
@inference
def nonz(x): return x[x > 0].sum() + (x > 1).nonzero().sum()
@inference
def uniq(x): return torch.unique(x.long()).sum()
@inference
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16): return lin(x)
@inference
def nograd(x):
    with torch.no_grad(): y = lin(x)
    return y + x
@inference
def infmode(x):
    with torch.inference_mode(): y = x * 2
    return y
@inference
def set_grad(x):
    torch.set_grad_enabled(False); y = lin(x); torch.set_grad_enabled(True); return y
@inference
def sdpk(x):
    from torch.nn.attention import sdpa_kernel, SDPBackend
    q = x.view(1, 1, 3, 4)
    with sdpa_kernel(SDPBackend.MATH): return F.scaled_dot_product_attention(q, q, q)
@inference
def rec_fn(x):
    with torch.profiler.record_function("a"): return x * 2
@inference
def vm(x): return torch.vmap(lambda v: v.sum() * 2)(x)
@inference
def fgrad(x): return torch.func.grad(lambda v: (v ** 2).sum())(x)
@inference
def fjvp(x): return torch.func.jvp(torch.sin, (x,), (x,))[1]
@inference
def fjacfwd(x): return torch.func.jacfwd(lambda v: v.sin().sum())(x)
@inference
def fhess(x): return torch.func.hessian(lambda v: (v ** 3).sum())(x[0])
@inference
def fcall(x): return torch.func.functional_call(lin, dict(lin.named_parameters()), (x,))
@inference
def ckpt(x): return torch.utils.checkpoint.checkpoint(lambda v: lin(v).relu(), x, use_reentrant=False)
@inference
def cond(x): return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
@inference
def manual_seed(x):
    torch.manual_seed(0); return x + torch.rand(4)
@inference
def gen(x):
    g = torch.Generator().manual_seed(1); return x + torch.rand(4, generator=g)
@inference
def forkrng(x):
    with torch.random.fork_rng(): y = torch.rand(4)
    return x + y
@inference
def setattr_mod(x):
    lin.last = x * 2; return lin.last + 1
@inference
def buf(x):
    m = nn.BatchNorm1d(4); return m(x)
@inference
def mod_inside(x):
    torch.manual_seed(0); m = nn.Linear(4, 2); return m(x)
@inference
def param_inside(x):
    w = nn.Parameter(torch.ones(4)); return x * w
@inference
def dc(x):
    @dataclasses.dataclass
    class D: a: torch.Tensor; b: int = 2
    d = D(x); return d.a * d.b
@inference
def nt(x):
    N = collections.namedtuple("N", "a b"); n = N(x, 2); return n.a * n.b
@inference
def en(x):
    class E(enum.Enum): A = 1; B = 2
    return x * E.B.value
@inference
def cnt(x):
    c = collections.Counter("aab"); return x * c["a"] + c.most_common(1)[0][1]
@inference
def dd(x):
    d = collections.defaultdict(list); d["a"].append(x); return d["a"][0] * 2
@inference
def dq(x):
    d = collections.deque(maxlen=2); d.append(x); d.appendleft(x * 2); return sum(d)
@inference
def ch(x): return collections.ChainMap({"a": x}, {"b": 2})["a"] * 2
@inference
def od(x):
    o = collections.OrderedDict(a=x, b=x * 2); o.move_to_end("a"); return list(o.values())[0]
@inference
def it1(x): return sum(a * b for a, b in itertools.product([x, x + 1], [1, 2]))
@inference
def it2(x): return torch.stack(list(itertools.accumulate([x, x, x])))
@inference
def it3(x): return sum(itertools.chain.from_iterable([[x], [x * 2]]))
@inference
def it4(x): return [k for k, g in itertools.groupby([1, 1, 2])][1] * x
@inference
def fp(x): return functools.partial(torch.add, x, alpha=2)(x)
@inference
def lru(x):
    @functools.lru_cache
    def f(n): return n * 2
    return x * f(2)
@functools.lru_cache
def lrun(n): return n * 3
@inference
def lru_out(x): return x * lrun(2)
@functools.lru_cache
def lrut(t): return t * 3
@inference
def lru_tensor(x): return lrut(x)
class CP:
    def __init__(self, t): self.t = t
    @functools.cached_property
    def v(self): return self.t * 2
@inference
def cprop(x): return CP(x).v
@functools.singledispatch
def sd(a): return a
@sd.register(int)
def _(a): return a + 1
@sd.register(torch.Tensor)
def _(a): return a * 2
@inference
def sdisp(x): return sd(x) + sd(2)
@inference
def red(x): return functools.reduce(operator.mul, [x, x, x])
@inference
def opg(x): return operator.itemgetter(0)([x]) + operator.attrgetter("T")(x).T + operator.methodcaller("sin")(x)
@inference
def ctx(x):
    with contextlib.ExitStack() as s: s.enter_context(torch.no_grad()); y = x * 2
    return y
@inference
def sup(x):
    with contextlib.suppress(ValueError): raise ValueError
    return x * 2
@contextlib.contextmanager
def cmgr(v): yield v * 2
@inference
def cm(x):
    with cmgr(x) as y: return y + 1
@inference
def gener(x):
    def g():
        for i in range(3): yield x * i
    return sum(g())
@inference
def genx(x): return max((t.sum() for t in x), key=lambda v: 0)
@inference
def clos(x):
    k = 2
    def f(v):
        nonlocal k; k += 1; return v * k
    return f(f(x))
@inference
def fstr(x): return x, f"{x.shape[0]:03d} {x.dtype}"
@inference
def mth(x): return x * math.sqrt(x.shape[0]) + math.pi + math.floor(2.5) + math.isclose(1, 1)
@inference
def cpy(x): return copy.copy([x])[0] + copy.deepcopy({"a": 2})["a"]
@inference
def dcpy(x): return copy.deepcopy(x) + 1
@inference
def insp(x): return x * len(inspect.signature(lambda a, b: 1).parameters)
@inference
def typ(x): return x * 2 if typing.get_origin(typing.List[int]) is list else x
@inference
def warn(x):
    warnings.warn("hello"); return x * 2
@inference
def logg(x):
    logging.getLogger("z").info("hello %s", x.shape); return x * 2
@inference
def prnt(x):
    print("a", x.shape, file=io.StringIO()); return x * 2
@inference
def exc(x):
    try: raise KeyError("a")
    except KeyError as e: return x * len(e.args)
@inference
def exc2(x):
    try: {}["a"]
    except KeyError: return x * 2
    finally: x = x + 1
@inference
def asrt(x):
    assert x.shape[0] == 3, "m"; return x
@inference
def asrt2(x):
    assert (x > -100).all(), "m"; return x * 2
@inference
def tcheck(x):
    torch._check(x.shape[0] == 3); return x
@inference
def itemop(x): return x * x.sum().item()
@inference
def itemsz(x):
    n = (x > 0).sum().item(); return torch.zeros(n).sum() + x
@inference
def tolist(x): return x * sum(x[0].tolist())
@inference
def branch(x): return x * 2 if x.sum() > 0 else x
@inference
def wh(x):
    while x.abs().max() < 3: x = x * 2
    return x
@inference
def tm(x):
    t = time.perf_counter(); y = x * 2; return y
@inference
def strm(x): return x * int("".join(["1", "2"])) + len(re.sub("a", "b", "aa"))
@inference
def rgx(x): return x * (2 if re.match(r"l\d", "l1") else 3)
@inference
def js(x): return x * json.loads("2")
@inference
def envv(x): return x * int(os.environ.get("ZZZ", "3"))
@inference
def glob(x):
    global G; G = x * 2; return G
@inference
def dictc(x): return {k: v * 2 for k, v in {"a": x}.items()}
@inference
def setc(x): return x * len({1, 2} | {3})
@inference
def slc(x): return x[..., 1:3][:, ::2] + x[[0, 1, 2]][:, [0]]
@inference
def setitem(x):
    y = torch.zeros(3, 4); y[0, :] = x[0]; y[x > 1] = 5; return y
@inference
def einsum(x): return torch.einsum("ij,kj->ik", x, x)
@inference
def cplx(x): return torch.fft.fft(x).abs()
@inference
def sparse(x): return torch.sparse.mm(x.to_sparse(), x.T)
@inference
def lstm(x):
    m = LSTM; return m(x.view(3, 1, 4))[0]
LSTM = nn.LSTM(4, 4)
@inference
def optim(x):
    lin.zero_grad(); return x
@inference
def mha(x): return MHA(x, x, x)[0]
MHA = nn.MultiheadAttention(4, 2)
@inference
def enc(x): return ENC(x.view(1, 3, 4))
ENC = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
class Sub(torch.Tensor): pass
@inference
def subc(x): return x.as_subclass(Sub) * 2
class TF(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, t, a=(), k=None): return f(*a, **(k or {}))
@inference
def tfmode(x):
    with TF(): return x * 2
@inference
def dev(x):
    with torch.device("cpu"): return x + torch.ones(4)
@inference
def defdt(x):
    torch.set_default_dtype(torch.float64); y = torch.ones(4); torch.set_default_dtype(torch.float32); return x + y
@inference
def tsize(x): return x.view(torch.Size([4, 3])), x.size()[::-1], x.shape.numel()
@inference
def finfo(x): return x.masked_fill(x > 1, torch.finfo(x.dtype).min)
@inference
def isin(x): return isinstance(x, torch.Tensor) and callable(x.sum) and hasattr(x, "foo"), x
@inference
def metac(x):
    class M(type):
        def __call__(cls, *a): o = super().__call__(*a); o.z = 3; return o
    class A(metaclass=M):
        def __init__(self, v): self.v = v
    a = A(x); return a.v * a.z
@inference
def slots(x):
    class A:
        __slots__ = ("v",)
    a = A(); a.v = x; return a.v * 2
@inference
def desc(x):
    class D:
        def __get__(self, o, t=None): return 3
    class A: d = D()
    return x * A().d
@inference
def getat(x):
    class A:
        def __getattr__(self, n): return len(n)
    return x * A().abc
@inference
def walrus(x): return y * 2 if (y := x + 1) is not None else y
@inference
def matc(x):
    match x.shape:
        case (3, n): return x * n
        case _: return x
@inference
def starr(x):
    a, *b = x; return a + sum(b)
@inference
def zips(x): return sum(a * b for a, b in zip(x, reversed(x), strict=True))
@inference
def enumr(x): return sum(i * v for i, v in enumerate(x, 1))
@inference
def mapf(x): return sum(map(torch.sin, x)), list(filter(lambda v: v > 1, [1, 2]))
@inference
def srt(x): return sorted([x[0], x[1]], key=lambda t: t.shape[0])[0]
@inference
def dec(x):
    def d(f):
        @functools.wraps(f)
        def w(*a): return f(*a) * 2
        return w
    @d
    def g(v): return v + 1
    return g(x)
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): ctx.save_for_backward(x); return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2 * ctx.saved_tensors[0]
@inference
def afn(x): return Fn.apply(lin(x))
@inference
def frac(x): return x * float(fractions.Fraction(1, 2))
@inference
def decm(x): return x * float(decimal.Decimal("1.5"))
@inference
def stat(x): return x * statistics.mean([1, 2, 3])
@inference
def npr(x): return x * np.sqrt(4) + np.arange(3).sum().item()
@inference
def nparr(x): return x + torch.tensor(np.array([1., 2, 3, 4], dtype=np.float32))
@inference
def nplin(x): return x * torch.from_numpy(np.linspace(0, 1, 4, dtype=np.float32))
@inference
def weak(x): return weakref.ref(cfg)().v * x
@inference
def attr_w(x): cfg.v += 0; cfg.items.append(1); cfg.items.pop(); return x * cfg.v
@inference
def idn(x): return x * (id(cfg) == id(cfg))
@inference
def hsh(x): return x * ({cfg: 2}[cfg])
@inference
def sinspect(x): return x if inspect.isfunction(sinspect) else x * 2
@inference
def typname(x): return x * len(type(cfg).__name__) + len(cfg.__class__.__mro__)
@inference
def varsd(x): return x * len(vars(cfg)) + len(dir(cfg) and [1])
@inference
def strf(x): return x, "{:>5}".format("a").strip().upper().split(","), "a" in "abc", "abc".replace("a", "b")
@inference
def byt(x): return x * len(b"abc".decode())
@inference
def grd(x):
    if lin.weight.grad is None: return x
    return x * lin.weight.grad.sum()
@inference
def isleaf(x): return x.is_leaf, x.requires_grad, x.is_contiguous(), x.stride(), x.storage_offset(), x.element_size(), x
@inference
def dptr(x): return x.data_ptr() == x.view(-1).data_ptr(), x
@inference
def untyped(x): return x.untyped_storage().nbytes(), x
@inference
def resz(x): return torch.empty(0).resize_(3, 4).copy_(x)
@inference
def setit(x):
    y = x.clone(); y.requires_grad_(True); z = (y * 2).sum(); return z
@inference
def detach_(x):
    y = (x * 2); y.detach_(); return y
@inference
def foreach(x):
    ts = [x.clone(), x * 2]; torch._foreach_add_(ts, 1); return ts
@inference
def meshg(x): return torch.meshgrid(x[0], x[1], indexing="ij")
@inference
def histo(x): return torch.histc(x, 4), torch.bincount(x.long().clamp(0).view(-1))
@inference
def topk(x): return torch.topk(x, 2), x.sort(), x.max(1), x.unique(return_counts=True)
@inference
def mult(x): return torch.multinomial(x.abs() + 1, 2)
@inference
def bern(x): return torch.bernoulli(torch.full((4,), 0.5)) + F.dropout(x, 0.5)
@inference
def rpad(x): return nn.utils.rnn.pad_sequence([x[0], x[1, :2]])
@inference
def packs(x): return nn.utils.rnn.pack_padded_sequence(x.view(3, 4, 1), torch.tensor([3, 2, 1, 1])).data
@inference
def clipg(x): return nn.utils.clip_grad_norm_([lin.weight], 1.0)
@inference
def jitis(x): return x if torch.jit.is_scripting() or torch.jit.is_tracing() else x * 2
@inference
def compiling(x): return x * 2 if torch.compiler.is_compiling() else x * 2
@inference
def namedt(x): return x.refine_names(None, None) if False else x
@inference
def nested(x): return torch.nested.nested_tensor([x[0], x[1]]).to_padded_tensor(0)
@inference
def thr(x):
    import threading
    return x * (threading.current_thread() is not None)
@inference
def impt(x):
    import math as m
    from torch.nn import functional as FF
    return FF.relu(x) * m.e
@inference
def execs(x): return eval("x * 2")
@inference
def lmb(x): return (lambda *a, **k: a[0] * k["b"])(x, b=2)
@inference
def kwd(x):
    def f(a, /, b, *, c=3, **d): return a * b * c * d["e"]
    return f(x, 2, e=4)
@inference
def superm(x):
    class A:
        def f(self, v): return v * 2
    class B(A):
        def f(self, v): return super().f(v) + 1
    return B().f(x)
@inference
def abcm(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self, v): ...
    class B(A):
        def f(self, v): return v * 2
    return B().f(x) if isinstance(B(), A) else x
@inference
def proto(x): return x * isinstance(3, numbers.Number)
@inference
def strm2(x): return x * len(textwrap.dedent("  a")) + len(string.ascii_letters)
@inference
def delx(x):
    y = [x, x]; del y[0]; z = {"a": 1}; del z["a"]; return y[0]
@inference
def yieldf(x):
    def g():
        v = yield 1
        yield v * 2
    i = g(); next(i); return i.send(x)
@inference
def comp(x): return torch.compile(lambda v: v * 2, backend="eager")(x) if False else x
inner = magneto.compile(lambda v: v * 2)
@inference
def mcomp(x): return inner(x) + 1
@inference
def tostr(x): return str(x.shape), repr(x.dtype), x
@inference
def devi(x): return x.to(x.device), x.cpu(), x.cuda() if False else x, x.device.type == "cpu", torch.cuda.is_available()
@inference
def threads(x): return x * (torch.get_num_threads() > 0)
@inference
def rngst(x):
    s = torch.get_rng_state(); y = torch.rand(4); torch.set_rng_state(s); return x + y
@inference
def tensorlist(x): return torch.tensor([x.sum(), x.mean()])
@inference
def tensorsc(x): return torch.tensor(x.shape[0]) * x, torch.tensor([x.shape[0], 2.0])
@inference
def stackl(x): return torch.stack([torch.tensor(float(i)) for i in range(4)]) * x
@inference
def idx(x): return x[x.argmax(0)[0]], x[torch.tensor(1)], x[0, torch.tensor([1, 2])]
@inference
def rang(x): return sum(x[i] for i in range(len(x)))
@inference
def contains(x): return 2.0 in x, x
@inference
def equal(x): return torch.equal(x, x), torch.allclose(x, x), x
@inference
def boolx(x): return bool((x > 0).any()), x
@inference
def sumpy(x): return sum(float(v) for v in x[0]) * x
@inference
def state(x): return len(lin.state_dict()) * x
@inference
def modulel(x): return nn.Sequential(*[nn.Identity() for _ in range(2)])(x)
@inference
def mods(x): return sum(q.sum() for q in lin.parameters()) + x, [n for n, _ in lin.named_modules()]
@inference
def evalm(x):
    lin.eval(); y = lin(x); lin.train(); return y
@inference
def reqg(x):
    lin.weight.requires_grad_(False); y = lin(x); lin.weight.requires_grad_(True); return y


# ---- trained ----

wide=nn.Linear(8,8); emb=nn.Embedding(10,8); gru=nn.GRU(8,8); ln=nn.LayerNorm(8); conv=nn.Conv1d(8,8,3,padding=1); bn=nn.BatchNorm1d(8)
@trained
def contrastive(x):
    z=F.normalize(wide(x)); s=z@z.T/0.1; s.fill_diagonal_(-1e9); return F.cross_entropy(s, torch.arange(len(x)).flip(0))
@trained
def focal(x):
    y=(x[:,0]>0).float(); l=F.binary_cross_entropy_with_logits(wide(x)[:,0],y,reduction="none"); pt=torch.exp(-l); return ((1-pt)**2*l).mean()
@trained
def dice(x):
    q=wide(x).sigmoid(); t=(x>0).float(); return 1-(2*(q*t).sum()+1)/(q.sum()+t.sum()+1)
@trained
def minmax(x):
    y=wide(x); y=(y-y.min())/(y.max()-y.min()+1e-6); return y.mean()
@trained
def hard_negatives(x):
    l=(wide(x)-x).pow(2).mean(1); return l.topk(3).values.mean()+l[l>l.mean()].sum()
@trained
def masked_mean(x):
    m=x[:,0]>0; h=wide(x); return (h*m[:,None]).sum()/m.sum().clamp(min=1)
@trained
def early_exit(x):
    for i in range(4):
        x=torch.tanh(wide(x))
        if x.abs().mean()<0.05: break
    return x.sum()
@trained
def mixup(x):
    lam=torch.distributions.Beta(1.0,1.0).sample(); i=torch.randperm(len(x)); return (wide(lam*x+(1-lam)*x[i])).pow(2).mean()
@trained
def rnn(x): return gru(x[:,None])[0].sum()
@trained
def vae(x):
    h=wide(x); mu,lv=h.chunk(2,1); z=mu+torch.exp(0.5*lv)*torch.randn_like(mu); return z.pow(2).sum()-0.5*(1+lv-mu.pow(2)-lv.exp()).sum()
@trained
def gumbel(x): return (F.gumbel_softmax(wide(x),hard=True)*torch.arange(8.)).sum()
@trained
def vq(x):
    h=wide(x); d=torch.cdist(h,emb.weight); i=d.argmin(1); q=emb(i); return F.mse_loss(q.detach(),h)+F.mse_loss(h+(q-h).detach(),x)
@trained
def moe(x):
    g=wide(x).softmax(-1); v,i=g.topk(2); out=torch.zeros_like(x)
    for e in range(3):
        r,c=torch.where(i==e)
        out.index_add_(0,r,ln(x[r])*v[r,c,None])
    return out.sum()
@trained
def triplet(x): return F.triplet_margin_loss(wide(x),wide(x.flip(0)),wide(x.roll(1,0)))
@trained
def ema_bn(x): return bn(wide(x)).relu().sum()
@trained
def attn(x):
    q=wide(x)[None]; m=torch.ones(len(x),len(x),dtype=torch.bool).tril(); return F.scaled_dot_product_attention(q,q,q,attn_mask=m).sum()
@trained
def packed(x):
    o,_=gru(nn.utils.rnn.pack_padded_sequence(x[:,None].expand(-1,2,-1),torch.tensor([len(x),2])));return o.data.sum()
@trained
def segment(x):
    idx=torch.arange(len(x))%3; o=torch.zeros(3,8).index_add(0,idx,wide(x)); return (o/torch.bincount(idx)[:,None]).sum()
@trained
def scatter_mean(x):
    idx=torch.arange(len(x))%3; n=int(idx.max())+1; o=torch.zeros(n,8).scatter_add(0,idx[:,None].expand(-1,8),wide(x)); return o.pow(2).sum()
@trained
def nms_like(x):
    s=wide(x)[:,0]; keep=[]
    order=s.argsort(descending=True)
    while len(order)>0:
        i=order[0]; keep.append(i); order=order[1:][(x[order[1:]]-x[i]).norm(dim=1)>1.0]
    return s[torch.stack(keep)].sum()
@trained
def nan_check(x):
    l=wide(x).pow(2).mean()
    if torch.isnan(l): raise ValueError("nan")
    return l
@trained
def log_loss(x):
    l=wide(x).pow(2).mean(); stats={"loss":l.item(),"max":float(x.max())}; return l*1.0
@trained
def padlen(x):
    lens=(x>0).sum(1); m=lens.max().item(); return wide(x)[:,:m].sum()
@trained
def beam(x):
    sc=torch.zeros(2,1); h=wide(x[:2])
    for t in range(3):
        sc,i=(sc+h.log_softmax(-1)).view(-1).topk(2); sc=sc[:,None]; h=wide(h[i//8])
    return sc.sum()
@trained
def gradnorm(x):
    l=wide(x).pow(2).mean(); g=torch.autograd.grad(l,wide.weight,create_graph=True)[0]; return l+g.norm()

MODULES = (wide, emb, gru, ln, bn)

def same(a, b):
    if isinstance(a, torch.Tensor): return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a.to_dense() if a.is_sparse else a, b.to_dense() if b.is_sparse else b, equal_nan=True, rtol=1e-4, atol=1e-5)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict): return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and (a == b if not isinstance(a, float) else abs(a - b) < 1e-4)


def reseed(seed):
    torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)


def infer(f):
    magneto.reset()
    compiled = magneto.compile(f)
    for k in range(3):
        answers = []
        for side in (f, compiled):
            reseed(k)
            answers.append(side(x0() * (k + 1)))
        if not same(*answers):
            return f"WRONG: {answers[1]} instead of {answers[0]}"


def train(f):
    magneto.reset()
    compiled = magneto.compile(f)
    for k in range(5):
        reseed(k)
        x, state, answers = torch.randn(6, 8) * (1 + k % 2), copy.deepcopy(bn.state_dict()), []
        for side in (f, compiled):
            bn.load_state_dict(state)
            for module in MODULES:
                module.zero_grad()
            reseed(100 + k)
            loss = side(x.clone())
            loss.backward()
            answers.append([loss.detach(), *[p.grad for m in MODULES for p in m.parameters()]])
        if not same(*answers):
            return f"WRONG: {answers[1]} instead of {answers[0]}"


def main():
    warnings.simplefilter("ignore")
    good, names = 0, sys.argv[1:]
    programs = [(infer, f) for f in INFERENCE.values()] + [(train, f) for f in TRAINED.values()]
    programs = [(how, f) for how, f in programs if not names or f.__name__ in names]
    for how, f in programs:
        try:
            wrong = how(f)
        except Exception as error:
            wrong = f"RAISED: {type(error).__name__}: {str(error)[:200]}"
        report = magneto.report()
        why = [b.reason for b in report.breaks] + [g.fallback for g in report.graphs if g.fallback] + [str(e) for e in report.fallbacks]
        if wrong or why or len(report.recompiles) > 1:
            print(f"{f.__name__}: {wrong or ''} {len(report.graphs)} graphs, {len(report.recompiles)} recompiles; {'; '.join(dict.fromkeys(why))}"[:300])
        else:
            good += 1
    print(f"{good} of {len(programs)} have no break")


if __name__ == "__main__":
    main()
