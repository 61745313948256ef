"""The grammar of generated Python programs: typed expressions and statements, from a random choice to source text.

Every value has one of a few types, so that most programs run to their end:

    T   a tensor that broadcasts to 2 x 3          LT  a list of T        DT  a dict of T, by name
    I   a small int    F  a float    B  a bool     LI  a list of I        O   an object of class P (attributes t, n, rate, items)
    S   a string                                   FN  a function T -> T  M   a module T -> T

What raises all the same (an index beyond a list, a key that is not there) must raise alike in both worlds.
"""

WORDS = ["a", "b", "ab", "c"]


class Scope:
    """Names that can be read, by type. `full`: tensors of all 2 x 3 elements, which can be written to in place."""

    def __init__(self, names=None, depth=0):
        self.names, self.depth = dict(names or {}), depth

    def of(self, kind):
        return [name for name, held in self.names.items() if held == kind]

    def inner(self):
        return Scope(self.names, self.depth + 1)


class Grammar:
    def __init__(self, rng):
        self.rng, self.count, self.features = rng, 0, {}
        self.reads_data = rng.random() < 0.4

    def chance(self, p):
        return self.rng.random() < p

    def new(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def one(self, *texts):
        return self.rng.choice(texts)

    def reads(self, *texts):
        """Numbers of tensors; some programs have none."""
        return list(texts) if self.reads_data else []

    # ---- expressions ----

    def expr(self, kind, scope, depth=0):
        """The text of an expression. Deep ones are names or constants."""
        known = scope.of(kind)
        if known and (depth > 2 or self.chance(0.35 + 0.2 * depth)):
            return self.rng.choice(known)
        e = lambda wanted: self.expr(wanted, scope, depth + 1)
        if depth > 3:
            return {"T": "C1", "I": "2", "F": "0.5", "B": "True", "S": "'a'", "LT": "[C1, C2]", "LI": "[1, 2]", "DT": "{'a': C2}", "O": "P(C3, 2)", "FN": "torch.neg",
                    "M": "torch.nn.ReLU()"}[kind]
        text = getattr(self, f"expr_{kind}")(e, scope)
        return text if text.isidentifier() or not depth else f"({text})"

    def expr_T(self, e, scope):
        texts = [
            lambda: f"{e('T')} + {e('T')}", lambda: f"{e('T')} * {e('I')}", lambda: f"{e('T')} * {e('F')}", lambda: f"torch.relu({e('T')})",
            lambda: f"({e('T')}).abs()", lambda: f"-({e('T')})", lambda: f"torch.where({e('T')} > 0, {e('T')}, {e('T')})",
            lambda: f"({e('T')} if {e('B')} else {e('T')})", lambda: f"{e('LT')}[{self.one('0', '-1', '1', '0')}]", lambda: f"{e('DT')}[{self.word()}]",
            lambda: f"{e('DT')}.get({self.word()}, {e('T')})", lambda: f"{e('O')}.t", lambda: f"{e('O')}.scaled({e('T')})", lambda: f"{e('O')}({e('T')})",
            lambda: f"{e('O')}[{e('I')} % 2]", lambda: f"{e('FN')}({e('T')})", lambda: f"(lambda z: z * {e('I')})({e('T')})", lambda: f"sum({e('LT')}, {e('T')})",
            lambda: f"helper({e('T')}, {e('I')})", lambda: f"[{e('T')}, {e('T')}][{e('I')} % 2]", lambda: f"({e('T')}, {e('T')})[{e('B')}]",
            lambda: f"getattr({e('O')}, {self.one(repr('t'), repr('twice'))})", lambda: f"({e('T')}).clone()", lambda: f"next(iter({e('LT')}))",
            lambda: f"next((z for z in {e('LT')} if {e('B')}), {e('T')})", lambda: f"{e('O')} + {e('T')}", lambda: f"{e('O')}.twice", lambda: f"many({e('T')}, *{e('LT')})",
            lambda: f"many({e('T')}, k={e('T')})", lambda: f"many({e('T')}, **{{'k': {e('T')}}})", lambda: f"functools.reduce(lambda p, q: p + q, {e('LT')}, {e('T')})",
            lambda: f"recursive({e('T')}, {e('I')} % 3)", lambda: f"{e('T')} - {e('T')}", lambda: f"list({e('DT')}.values())[0]", lambda: f"CONFIG['t']",
            lambda: f"{e('O')}.child().t", lambda: f"max({e('LT')}, key=lambda z: z.dim())", lambda: f"functools.partial(helper, n={e('I')})({e('T')})",
            lambda: f"Pair({e('T')}, {e('I')}).t", lambda: f"Record({e('T')}).t", lambda: f"Record({e('T')}, n={e('I')}).scaled()", lambda: f"torch.tanh({e('T')})",
            lambda: f"{e('T')}.sum(0)", lambda: f"({e('T')})[..., :1]", lambda: f"torch.stack({e('LT')}).sum(0)", lambda: f"closure_of({e('I')})({e('T')})",
            lambda: f"(z := {e('T')}) + z", lambda: f"{e('T')} / (1 + {e('I')} ** 2)", lambda: f"OPS[{self.one(repr('neg'), repr('double'))}]({e('T')})",
            lambda: f"CACHE.setdefault({self.word()}, {e('T')})", lambda: f"decorated({e('T')})", lambda: f"P.make({e('T')}).t", lambda: f"P.static({e('T')})",
            lambda: f"RECENT[{self.one('0', '-1')}]", lambda: "VIEW['a']", lambda: f"VIEW.get({self.word()}, {e('T')})", lambda: f"SCALE({e('T')})", lambda: f"picked({e('T')})",
            lambda: f"sum(GROUPS[{self.word()}], {e('T')})", lambda: f"max(RECENT, key=lambda z: z.dim()) + {e('T')}", lambda: f"next(guarded({e('LT')}, {e('I')}), {e('T')})", lambda: f"{e('T')} * COUNTS[{self.word()}]",
            lambda: f"fast({e('T')}, {e('I')})", lambda: f"fast({e('T')})", lambda: f"FAST.scaled({e('T')})", lambda: f"FAST({e('T')})", lambda: f"Slotted({e('T')}).twice()", lambda: f"Pair({e('T')}, {e('I')})._replace(t={e('T')}).t",
            lambda: f"dataclasses.replace(Record({e('T')}), n={e('I')}).scaled()", lambda: f"{e('T')} * factor({e('I')})", lambda: f"collections.ChainMap({e('DT')}, CACHE)['a']", lambda: f"next(itertools.islice(stream({e('T')}, 4), {e('I')} % 4, None))",
            lambda: f"[*itertools.pairwise({e('LT')} + [{e('T')}, {e('T')}])][0][1]", lambda: f"{e('T')}.detach()", lambda: f"({e('T')})[:, 1:].sum(1, keepdim=True)", lambda: f"{e('O')}.total", lambda: f"vars({e('O')})['t']",
            lambda: f"collections.OrderedDict({e('DT')}).popitem()[1]", lambda: f"operator.attrgetter('t')({e('O')})", lambda: f"operator.itemgetter(0)({e('LT')})", lambda: f"(lambda *a, **k: a[0] + k['z'])({e('T')}, z={e('T')})",
        ]
        texts += self.reads(lambda: f"(lambda z: z * z[z > 0.37].sum())({e('T')})", lambda: f"(lambda z: z + z[(z > 0.37).sum() % 2])({e('T')})", lambda: f"{e('T')} * {e('T')}.mean().item()")
        if scope.of("M"):
            texts += [lambda: f"{self.rng.choice(scope.of('M'))}({e('T')} + torch.zeros(2, 3))"] * 6
        return self.rng.choice(texts)()

    def expr_I(self, e, scope):
        return self.rng.choice([
            lambda: str(self.rng.randrange(4)), lambda: str(self.rng.randrange(4)), lambda: f"len({e('LT')})", lambda: f"{e('T')}.dim()", lambda: f"({e('I')} + {e('I')})",
            lambda: f"({e('I')} * {e('I')} % 5)", lambda: f"({e('I')} if {e('B')} else {e('I')})", lambda: f"sum({e('LI')})", lambda: f"max({e('LI')}, default=1)",
            lambda: f"{e('O')}.n", lambda: f"int({e('B')})", lambda: f"len({e('S')})", lambda: f"{e('LI')}[0]", lambda: f"len({e('O')})", lambda: f"min({e('I')}, 3)",
            lambda: f"divmod({e('I')}, 3)[1]", lambda: "CONFIG['n']", lambda: "COUNT", lambda: f"len({{*{e('LI')}}})", lambda: f"sum(1 for z in {e('LI')} if z > 1)",
            lambda: f"len({e('DT')})", lambda: f"P.rank", lambda: f"{e('O')}.count({e('I')})", lambda: f"({e('I')} - {e('I')}) % 4", lambda: f"{e('LI')}.count({e('I')})",
            lambda: f"[2, 1, 3].index({self.one('1', '2', '3')})", lambda: f"Mode.B.value", lambda: f"len(sorted({e('LI')}, reverse=True))", lambda: f"bool({e('LT')}) + 1",
            lambda: f"COUNTS[{self.word()}]", lambda: "len(RECENT)", lambda: "len(VIEW)", lambda: f"len(GROUPS[{self.word()}])", lambda: f"SCALE.keywords['n']", lambda: f"COUNTS.get({self.word()}, 1)",
            *self.reads(lambda: f"int(({e('T')} > 0.37).sum())", lambda: f"len(({e('T')} > 0.37).nonzero())", lambda: f"({e('T')} > 0.37).sum(0).tolist()[0]", lambda: f"({e('T')} > 0.37).sum().item()")])()

    def expr_F(self, e, scope):
        return self.rng.choice([lambda: self.one("0.5", "1.5", "-0.25"), lambda: f"{e('I')} * 0.5", lambda: f"float({e('I')})", lambda: f"{e('O')}.rate",
                                lambda: "CONFIG['rate']", lambda: f"({e('F')} + {e('I')})", lambda: f"max({e('F')}, 0.1)",
                                *self.reads(lambda: f"round({e('T')}.sum().item(), 1)", lambda: f"{e('T')}.sum().item()", lambda: f"float({e('T')}.detach().mean())")])()

    def expr_B(self, e, scope):
        return self.rng.choice([
            lambda: f"{e('I')} > {e('I')}", lambda: f"({e('B')} and {e('B')})", lambda: f"not {e('B')}", lambda: f"{e('S')} == {e('S')}", lambda: f"isinstance({e('O')}, Q)",
            lambda: f"{self.word()} in {e('DT')}", lambda: f"{e('T')} is {e('T')}", lambda: f"hasattr({e('O')}, 'extra')", lambda: f"len({e('LT')}) > 2", lambda: f"{e('LT')}[0].dim() == 2",
            lambda: f"any(z > 1 for z in {e('LI')})", lambda: f"all({e('LI')})", lambda: f"bool({e('LI')})", lambda: f"{e('S')}.startswith('a')", lambda: f"{e('O')} is {e('O')}",
            lambda: f"({e('B')} or {e('B')})", lambda: f"{e('I')} in {e('LI')}", lambda: f"{e('T')}.requires_grad", lambda: f"MODE is Mode.A", lambda: f"0 < {e('I')} <= 2",
            lambda: f"{e('O')} == {e('O')}", lambda: f"{e('LI')} == {e('LI')}", lambda: f"callable({e('O')})", lambda: f"type({e('O')}) is P",
            *self.reads(lambda: f"({e('T')} > 0.37).any()", lambda: f"bool(({e('T')} > 0.37).all())", lambda: f"({e('T')}.sum() > 0.37)")])()

    def expr_S(self, e, scope):
        return self.rng.choice([lambda: self.word(), lambda: self.word(), lambda: self.formatted(e('I')), lambda: f"{e('S')}.upper()", lambda: f"({e('S')} if {e('B')} else {e('S')})",
                                lambda: f"{e('O')}.name", lambda: f"str({e('I')})", lambda: f"'-'.join(map(str, {e('LI')}))", lambda: f"type({e('O')}).__name__",
                                lambda: f"'%d' % {e('I')}", lambda: f"{e('S')}[:1]", lambda: f"sorted({e('DT')})[0]"])()

    def expr_LT(self, e, scope):
        return self.rng.choice([
            lambda: f"[{e('T')}, {e('T')}]", lambda: f"list({e('LT')})", lambda: f"{e('LT')}[1:]", lambda: f"{e('LT')} + [{e('T')}]", lambda: f"[z * {e('I')} for z in {e('LT')}]",
            lambda: f"[z for z in {e('LT')} if {e('B')}]", lambda: f"list(map({e('FN')}, {e('LT')}))", lambda: f"list(reversed({e('LT')}))", lambda: f"list({e('DT')}.values())",
            lambda: f"{e('O')}.items", lambda: f"[p + q for p, q in zip({e('LT')}, {e('LT')})]", lambda: f"[z + i for i, z in enumerate({e('LT')})]", lambda: f"list(stream({e('T')}, {e('I')} % 3))",
            lambda: f"[{e('T')} for _ in range(2)]", lambda: f"list({e('O')})", lambda: f"sorted({e('LT')}, key=lambda z: -z.dim())", lambda: f"[*{e('LT')}, {e('T')}]",
            lambda: f"list(filter(lambda z: z.dim() == 2, {e('LT')}))", lambda: f"{e('LT')} * 2", lambda: f"list(itertools.chain({e('LT')}, {e('LT')}))", lambda: f"{e('LT')}.copy()",
            lambda: "list(RECENT)", lambda: f"[*guarded({e('LT')}, {e('I')})]", lambda: f"list(delegating({e('LT')}, {e('I')}))", lambda: f"list(VIEW.values())", lambda: f"[*GROUPS[{self.word()}], {e('T')}]"])()

    def expr_LI(self, e, scope):
        return self.rng.choice([lambda: "[1, 2]", lambda: f"list(range({e('I')} % 4))", lambda: f"sorted({e('LI')})", lambda: f"[z * 2 for z in {e('LI')}]", lambda: f"{e('LI')}[::-1]",
                                lambda: f"[{e('I')}, {e('I')}]", lambda: f"sorted({{*{e('LI')}}})", lambda: f"[len(z) for z in {e('DT')}]", lambda: f"list(map(abs, {e('LI')}))",
                                lambda: f"list(itertools.accumulate({e('LI')}))"])()

    def expr_DT(self, e, scope):
        return self.rng.choice([lambda: f"{{'a': {e('T')}, 'b': {e('T')}}}", lambda: f"dict({e('DT')})", lambda: f"{{**{e('DT')}, 'c': {e('T')}}}", lambda: f"{{k: v * 2 for k, v in {e('DT')}.items()}}",
                                lambda: f"dict(zip('ab', {e('LT')}))", lambda: f"{e('DT')} | {{'a': {e('T')}}}", lambda: f"dict(a={e('T')})", lambda: f"dict(sorted({e('DT')}.items(), key=lambda p: p[0]))",
                                lambda: f"{{k: v for k, v in {e('DT')}.items() if k != 'b'}}", lambda: "CACHE", lambda: "dict(VIEW)", lambda: "{**VIEW}"])()

    def expr_O(self, e, scope):
        return self.rng.choice([lambda: f"P({e('T')}, {e('I')})", lambda: f"Q({e('T')}, {e('I')})", lambda: f"copy.copy({e('O')})", lambda: f"{e('O')}.child()", lambda: f"P.make({e('T')})",
                                lambda: f"({e('O')} if {e('B')} else {e('O')})", lambda: "CONFIG['o']"])()

    def expr_FN(self, e, scope):
        return self.rng.choice([lambda: "torch.neg", lambda: f"(lambda z: z + {e('I')})", lambda: f"{e('O')}.scaled", lambda: f"closure_of({e('I')})", lambda: "decorated",
                                lambda: f"functools.partial(helper, n={e('I')})", lambda: "OPS['double']", lambda: f"(lambda z, k={e('T')}: z * k)", lambda: f"{e('O')}"])()

    def expr_M(self, e, scope):
        return self.rng.choice(["torch.nn.ReLU()", "torch.nn.Identity()"])

    def formatted(self, text):
        """A formatted string; older versions of Python take no quotes inside of it."""
        return f"'{{}}.'.format({text})" if set(text) & set("'\"{}:!\\") else f"f'<{{{text}}}>'"

    def word(self):
        return repr(self.rng.choice(WORDS))

    def holder(self, kind, scope):
        """A container or an object that somebody else sees, too: what is done to it matters."""
        texts = scope.of(kind) * 3
        if kind == "LT":
            texts += [f"{o}.items" for o in scope.of("O")]
        elif kind == "DT":
            texts += ["CACHE"]
        elif kind == "O":
            texts += ["CONFIG['o']"]
        elif kind == "LI":
            texts += ["LOG"]
        return self.rng.choice(texts) if texts else self.expr(kind, scope, 2)

    # ---- statements ----

    def block(self, scope, size, inside=()):
        """Lines of a body; names that it makes stay in it."""
        lines = []
        scope = scope.inner()
        for _ in range(size):
            lines += self.statement(scope, inside)
        return lines or ["pass"]

    def indent(self, lines):
        return ["    " + line for line in lines]

    def statement(self, scope, inside=()):
        """One statement, as lines. `inside`: what it stands in ("loop", "function")."""
        deep = scope.depth > 3
        kind = self.rng.choices(["assign", "tensor", "container", "attribute", "alias", "state", "print", "if", "loop", "try", "with", "def", "leave", "delete", "unpack", "generator",
                                 "end", "match", "walk", "stack", "class"],
                                [22, 10, 14, 12, 9, 8, 3, 0 if deep else 7, 0 if deep else 6, 0 if deep else 6, 0 if deep else 3, 0 if deep else 5, 2, 2, 4, 3,
                                 2, 0 if deep else 2, 0 if deep else 2, 0 if deep else 1, 0 if deep or "driver" in inside else 1])[0]
        return getattr(self, f"stmt_{kind}")(scope, inside)

    def stmt_assign(self, scope, inside):
        kind = self.rng.choices(["T", "I", "B", "S", "LT", "LI", "DT", "O", "F", "FN"], [35, 12, 5, 6, 12, 5, 9, 9, 4, 5])[0]
        text = self.expr(kind, scope)
        known = scope.of(kind)
        if known and self.chance(0.4):
            name = self.rng.choice(known)
            if kind == "I":
                return [f"{name} = ({text}) % 5"]
            return [f"{name} = {text}"]
        name = self.new(kind.lower())
        scope.names[name] = kind
        return [f"{name} = ({text}) % 5" if kind == "I" else f"{name} = {text}"]

    def place(self, scope):
        """Something that holds a tensor and can be assigned to."""
        e = lambda kind: self.holder(kind, scope)
        return self.rng.choice([lambda: f"{e('O')}.t", lambda: f"{e('LT')}[0]", lambda: f"{e('LT')}[-1]", lambda: f"{e('DT')}['a']", lambda: "CACHE['a']", lambda: "CONFIG['t']",
                                lambda: f"{e('O')}.extra", lambda: f"{e('O')}.items[0]", lambda: f"P.shared"])()

    def stmt_tensor(self, scope, inside):
        """In-place operators: on names, and on what containers and attributes hold."""
        target = self.rng.choice(scope.of("T")) if scope.of("T") and self.chance(0.6) else self.place(scope)
        e = self.expr("T", scope, 1)
        return [self.rng.choice([f"{target} += {self.expr('I', scope, 2)}", f"{target}.mul_({self.expr('I', scope, 2)})", f"{target} *= {self.expr('F', scope, 2)}", f"{target}.copy_({target} * 2)",
                                 f"{target}[..., 0] = {self.expr('I', scope, 2)}", f"{target}.zero_()", f"{target} = {e}", f"{target} -= 1", f"{target}.clamp_(-2, 2)",
                                 f"{target}.add_(torch.ones(3))", f"{target} = {target} * 2"])]

    def stmt_container(self, scope, inside):
        e = lambda kind: self.expr(kind, scope, 1)
        lt, dt, li = self.holder("LT", scope), self.holder("DT", scope), self.holder("LI", scope)
        return [self.rng.choice([
            lambda: f"{lt}.append({e('T')})", lambda: f"{lt}[0] = {e('T')}", lambda: f"{lt}.insert(0, {e('T')})", lambda: f"{lt}.reverse()", lambda: f"{lt}.extend({e('LT')}[:2])",
            lambda: f"del {lt}[-1]", lambda: f"{lt}[:] = {e('LT')}", lambda: f"{dt}[{self.word()}] = {e('T')}", lambda: f"{dt}.pop({self.word()}, None)", lambda: f"{dt}.update({e('DT')})",
            lambda: f"{dt}.setdefault({self.word()}, {e('T')})", lambda: f"{li}.append({e('I')})", lambda: f"{li}.sort()", lambda: f"{lt}.pop()", lambda: f"{dt}['a'] = {dt}['a'] + {e('I')}",
            lambda: f"{lt}[-1] = {lt}[0]", lambda: f"{dt}[{self.word()}] = {dt}.pop('a')", lambda: f"{lt} += [{e('T')}]" if lt.isidentifier() else f"{lt}.clear()", lambda: f"{lt}.append({lt}.pop(0))"])()]

    def stmt_attribute(self, scope, inside):
        e = lambda kind: self.expr(kind, scope, 1)
        o = self.holder("O", scope)
        return [self.rng.choice([
            lambda: f"{o}.t = {e('T')}", lambda: f"{o}.n += 1", lambda: f"{o}.items.append({e('T')})", lambda: f"{o}.extra = {e('T')}", lambda: f"setattr({o}, 'extra', {e('T')})",
            lambda: f"{o}.items = {e('LT')}", lambda: f"{o}.rate = {e('F')}", lambda: f"{o}.twice = {e('T')}", lambda: f"{o}.name = {e('S')}", lambda: f"{o}.__dict__['n'] = {e('I')}",
            lambda: f"{o}[0] = {e('T')}", lambda: f"{o}.bump({e('T')})", lambda: f"{o}.t = {o}.t", lambda: f"{o}.n = ({e('I')}) % 4"])()]

    def stmt_alias(self, scope, inside):
        """A value is read from its place, the place is overwritten, and the value is used again."""
        a, b = self.place(scope), self.place(scope)
        name = self.new("t")
        e = lambda kind: self.expr(kind, scope, 1)
        lines = self.rng.choice([
            lambda: [f"{name} = {a}", f"{a} = {e('T')}", f"{b} = {name} + 1"], lambda: [f"{name} = {a}", f"{a}, {b} = {b}, {a}"], lambda: [f"{name} = {a}", f"{a} = {a} * 2", f"{a} = {name}"],
            lambda: [f"{name} = {a}", f"try:", f"    {a} = {e('T')}", f"    {b} = helper({a}, 2)", "finally:", f"    {a} = {name}"], lambda: [f"{a} = {b} = {name} = {e('T')}"],
            lambda: [f"{name}, {a} = {a}, {e('T')}"], lambda: [f"{name} = {a}", f"{a} = {b}", f"{b} = {name}"], lambda: [f"{name} = {a}", f"{a} += 1"],
            lambda: [f"with swapped({self.holder('O', scope)}, {e('T')}) as {name}:", f"    {b} = {name} * 2"]])()
        scope.names[name] = "T"
        return lines

    def stmt_generator(self, scope, inside):
        """A generator that is walked by hand: sent numbers, closed, thrown into."""
        name, first = self.new("g"), self.new("t")
        lines = [f"{name} = {self.one('guarded', 'delegating')}({self.expr('LT', scope, 1)}, {self.expr('I', scope, 2)})", f"{first} = next({name}, C1)"]
        scope.names[first] = "T"
        ends = [[f"{name}.close()"], ["with contextlib.suppress(StopIteration):", f"    {self.place(scope)} = {name}.send({self.expr('I', scope, 2)})"],
                ["try:", f"    {name}.throw(Stop(2))", "except (Stop, StopIteration) as e:", "    LOG.append(type(e).__name__)"], [f"LOG.extend({name})"], [f"del {name}"], []]
        return lines + self.rng.choice(ends)

    def stmt_end(self, scope, inside):
        """Objects whose end runs code, and what holds them: alone, in a list, in an attribute, in a closure, in an iterator."""
        name, first = self.new("g"), self.new("t")
        waiting = f"{self.one('guarded', 'delegating')}({self.expr('LT', scope, 1)}, {self.expr('I', scope, 2)})"
        held = self.rng.choice([f"Ending({self.expr('I', scope, 2)})", f"[Ending({self.expr('I', scope, 2)})]", f"[{waiting}]", f"map(torch.neg, {waiting})", f"(z * 2 for z in {waiting})", f"{{'g': {waiting}}}"])
        lines = [f"{name} = {held}"]
        if held.startswith("[") and "Ending" not in held:
            lines.append(f"{first} = next({name}[0], C1)")
        elif held.startswith(("map", "(")):
            lines.append(f"{first} = next({name}, C1)")
        elif held.startswith("{"):
            lines.append(f"{first} = next({name}['g'], C1)")
        else:
            lines.append(f"{first} = {self.expr('T', scope, 1)}")
        scope.names[first] = "T"
        o = self.holder("O", scope)
        ends = [[f"del {name}"], [f"{name} = None"], [], [f"{o}.kept = {name}", f"del {name}", f"{o}.kept = None"], [f"{name} = [{name}]", f"{name}.clear()"], [f"print({self.expr('I', scope, 2)})", f"del {name}"]]
        return lines + self.rng.choice(ends) + [f"LOG.append({self.rng.randrange(10, 20)})"]

    def stmt_match(self, scope, inside):
        e = lambda kind: self.expr(kind, scope, 1)
        first, block = self.new("t"), lambda: self.indent(self.indent(self.block(scope, 1, inside)))
        kind = self.rng.randrange(4)
        if kind == 0:
            lines = [f"match {e('I')}:", "    case 0:", *block(), "    case 1 | 2:", *block(), "    case _:", *block()]
        elif kind == 1:
            lines = [f"match {e('DT')}:", f"    case {{'b': {first}}}:", f"        {self.place(scope)} = {first}", "    case _:", *block()]
        elif kind == 2:
            lines = [f"match {e('LT')}:", f"    case [{first}, *_] if {e('B')}:", f"        {self.place(scope)} = {first} + 1", "    case []:", "        pass", "    case _:", *block()]
        else:
            lines = [f"match {e('O')}:", f"    case Q(n=2, t={first}) | P(n=1, t={first}):", f"        {self.place(scope)} = {first} * 2", "    case _:", *block()]
        return lines

    def stmt_walk(self, scope, inside):
        """A generator of the function itself: it closes over names, is left early, sent to or delegated to."""
        name, arg, got, out = self.new("gen"), self.new("z"), self.new("got"), self.new("t")
        inner = scope.inner()
        inner.names = dict(inner.names) | {arg: "T"}
        e = lambda kind: self.expr(kind, inner, 1)
        bodies = [[f"yield {e('T')}", f"yield {e('T')}"], [f"{got} = yield {e('T')}", f"LOG.append({got} is None)", f"yield {e('T')}"],
                  ["try:", f"    yield {e('T')}", f"    yield {e('T')}", "finally:", f"    LOG.append({self.rng.randrange(20, 30)})"],
                  [f"yield from {e('LT')}[:2]", f"return {e('I')}"], [f"for {got} in {e('LT')}[:2]:", f"    LOG.append({e('I')})", f"    yield {got} * 2"],
                  ["with contextlib.suppress(Stop):", f"    yield {e('T')}", f"    raise Stop(1)", f"yield {e('T')}"]]
        lines = [f"def {name}({arg}):", *self.indent(self.rng.choice(bodies))]
        made = f"{name}({self.expr('T', scope, 1)})"
        uses = [[f"{out} = next({made}, C1)"], [f"{out} = sum({made}, C2)"], [f"{out} = C3", f"for {out} in {made}:", f"    if {self.expr('B', scope, 1)}:", "        break"], [f"{out}, *_ = {made}"],
                [f"{out} = list({made})[-1]"], [f"{got} = {made}", f"{out} = next({got}, C1)", "with contextlib.suppress(StopIteration):", f"    {out} = {got}.send(3)"],
                [f"{out} = [*zip({made}, {self.expr('LT', scope, 1)})][0][0]"]]
        scope.names[out] = "T"
        return lines + self.rng.choice(uses)

    def stmt_stack(self, scope, inside):
        name = self.new("stack")
        o, e = self.holder("O", scope), lambda kind: self.expr(kind, scope, 1)
        inner = [self.rng.choice([f"{name}.enter_context(noted({e('I')}))", f"{name}.callback(LOG.append, {e('I')})", f"{name}.enter_context(swapped({o}, {e('T')}))", f"{name}.push({o})", f"{name}.enter_context(torch.no_grad())"])
                 for _ in range(self.rng.randint(1, 2))]
        return [f"with contextlib.ExitStack() as {name}:", *self.indent(inner + self.block(scope.inner(), 1, inside))]

    def stmt_class(self, scope, inside):
        """A class of the function itself, with methods that close over its names."""
        name, made = self.new("Local"), self.new("o")
        e = lambda kind: self.expr(kind, scope, 1)
        lines = [f"class {name}({self.one('P', 'Q')}):", f"    rank = {self.rng.randrange(3)}", "    def scaled(self, z):", f"        return super().scaled(z) + {e('T')}"]
        if self.chance(0.4):
            lines += ["    @property", "    def twice(self):", f"        return self.t * {e('I')}"]
        scope.names[made] = "O"
        return lines + [f"{made} = {name}({e('T')}, {e('I')})"]

    def stmt_state(self, scope, inside):
        e = lambda kind: self.expr(kind, scope, 1)
        if "driver" in inside:
            return [self.rng.choice([lambda: "COUNT += 1", lambda: f"CONFIG['n'] = ({e('I')}) % 4", lambda: "MODE = Mode.B", lambda: f"P.rank = ({e('I')}) % 3", lambda: f"CONFIG['rate'] = {e('F')}",
                                     lambda: f"CONFIG['t'] = {e('T')}", lambda: "helper.__defaults__ = (3,)", lambda: f"OPS['neg'] = torch.abs", lambda: f"CACHE.clear()", lambda: f"CACHE['a'] = {e('T')}",
                                     lambda: "P.scaled = lambda self, z: z * 3", lambda: f"CONFIG['o'] = {e('O')}", lambda: f"INDEX[0] = {self.one('1', '0', '7')}", lambda: f"SCALE.keywords['n'] = ({e('I')}) % 4",
                                     lambda: "RECENT.reverse()", lambda: f"RECENT.appendleft({e('T')})", lambda: f"COUNTS[{self.word()}] += 1", lambda: "GROUPS.clear()", lambda: "COUNTS.default_factory = lambda: 2"])()]
        return [self.rng.choice([lambda: "tick()", lambda: f"CONFIG['n'] = (CONFIG['n'] + 1) % 4", lambda: f"CACHE[{self.word()}] = {e('T')}", lambda: f"CONFIG['t'] = {e('T')}", lambda: "P.rank = (P.rank + 1) % 3",
                                 lambda: f"CACHE.pop({self.word()}, None)", lambda: f"CONFIG['o'].t = {e('T')}", lambda: f"LOG.append({e('I')})", lambda: f"LOG.append({e('T')})",
                                 lambda: f"RECENT.append({e('T')})", lambda: "RECENT.rotate(1)", lambda: f"RECENT[0] = {e('T')}", lambda: f"COUNTS[{self.word()}] += 1", lambda: f"GROUPS[{self.word()}].append({e('T')})"])()]

    def stmt_print(self, scope, inside):
        e = lambda kind: self.expr(kind, scope, 1)
        return [self.rng.choice([lambda: f"print({e('I')}, {e('S')})", lambda: f"print('shape', tuple({e('T')}.shape))", lambda: f"print({e('LI')}, end=';')", lambda: f"print({self.formatted(e('S'))}, '{{:3d}}'.format({e('I')}))",
                                 lambda: f"print(sorted({e('DT')}))", lambda: f"print(*{e('LI')}, sep='-')"])()]

    def stmt_if(self, scope, inside):
        lines = [f"if {self.expr('B', scope)}:", *self.indent(self.block(scope, self.rng.randint(1, 3), inside))]
        if self.chance(0.3):
            lines += [f"elif {self.expr('B', scope)}:", *self.indent(self.block(scope, 1, inside))]
        if self.chance(0.5):
            lines += ["else:", *self.indent(self.block(scope, self.rng.randint(1, 2), inside))]
        return lines

    def stmt_loop(self, scope, inside):
        inner, name = scope.inner(), self.new("i")
        kind = self.rng.randrange(7)
        if kind == 0:
            head = f"for {name} in range({self.expr('I', scope, 2)} % 4):"
            inner.names[name] = "I"
        elif kind == 1:
            head = f"for {name} in list({self.expr('LT', scope, 1)})[:4]:"
            inner.names[name] = "T"
        elif kind == 2:
            other = self.new("k")
            head = f"for {other}, {name} in list({self.expr('DT', scope, 1)}.items()):"
            inner.names |= {name: "T", other: "S"}
        elif kind == 3:
            other = self.new("j")
            head = f"for {other}, {name} in enumerate({self.expr('LT', scope, 1)}[:4]):"
            inner.names |= {name: "T", other: "I"}
        elif kind == 4:
            other = self.new("q")
            head = f"for {name}, {other} in zip({self.expr('LT', scope, 1)}[:3], {self.expr('LI', scope, 1)}):"
            inner.names |= {name: "T", other: "I"}
        elif kind == 5:
            body = self.block(inner, self.rng.randint(1, 2), (*inside, "loop"))
            return [f"{name} = 0", f"while {name} < {self.rng.randint(1, 3)}:", f"    {name} += 1", *self.indent(body)]
        else:
            head = f"for {name} in stream({self.expr('T', scope, 1)}, {self.expr('I', scope, 2)} % 3):"
            inner.names[name] = "T"
        lines = [head, *self.indent(self.block(inner, self.rng.randint(1, 3), (*inside, "loop")))]
        if self.chance(0.15):
            lines += ["else:", *self.indent(self.block(scope, 1, inside))]
        return lines

    def stmt_try(self, scope, inside):
        body = self.block(scope, self.rng.randint(1, 2), inside)
        if self.chance(0.6):
            body.append(self.rng.choice(["raise ValueError('no')", "raise Stop(3)", f"{self.expr('DT', scope, 2)}['none']", "[][0]", "1 / 0", f"if {self.expr('B', scope, 1)}: raise KeyError('k')",
                                         "assert False, 'never'", "torch.ones(2) + torch.ones(3)", "raise Stop(1) from ValueError('why')", "int('x')", "None.t", f"picked({self.expr('T', scope, 2)})", "torch.linalg.inv(torch.zeros(2, 2))",
                                         "C1[INDEX + 9]"]))
        kind = self.rng.choice(["Exception", "ValueError", "(KeyError, IndexError)", "Stop", "LookupError", "(ArithmeticError, RuntimeError, TypeError)"])
        lines = ["try:", *self.indent(body)]
        if self.chance(0.85):
            name = self.new("e")
            lines += [f"except {kind} as {name}:", *self.indent(self.block(scope, 1, inside)), f"    LOG.append(str({name})[:40])"]
            if self.chance(0.2):
                lines.append(f"    raise")
            if self.chance(0.25):
                lines += ["else:", *self.indent(self.block(scope, 1, inside))]
            if self.chance(0.35):
                lines += ["finally:", *self.indent(self.block(scope, 1, ()))]
        else:
            lines += ["finally:", *self.indent(self.block(scope, 1, ()))]
        return lines

    def stmt_with(self, scope, inside):
        inner, name = scope.inner(), self.new("w")
        head = self.rng.choice([f"with {self.holder('O', scope)} as {name}:", f"with swapped({self.holder('O', scope)}, {self.expr('T', scope, 1)}) as {name}:", "with torch.no_grad():",
                                "with contextlib.suppress(KeyError, IndexError):", f"with noted({self.expr('I', scope, 2)}) as {name}:"])
        if "swapped" in head:
            inner.names[name] = "T"
        elif "noted" in head:
            inner.names[name] = "LI"
        elif " as " in head:
            inner.names[name] = "O"
        return [head, *self.indent(self.block(inner, self.rng.randint(1, 2), inside))]

    def stmt_def(self, scope, inside):
        """An inner function: a closure, with defaults, nonlocal names, or a generator."""
        name, arg = self.new("fn"), self.new("z")
        inner = scope.inner()
        inner.names[arg] = "T"
        default = f", k={self.expr('I', scope, 1)}" if self.chance(0.4) else ""
        if default:
            inner.names["k"] = "I"
        # what is assigned to becomes local: only what the body makes itself, or what it says is nonlocal
        before = dict(inner.names)
        body = []
        shared = scope.of("T") + scope.of("I")
        outer = self.rng.choice(shared) if shared and "function" in inside and self.chance(0.4) else None
        for _ in range(self.rng.randint(0, 2)):
            body += [line for line in self.stmt_container(inner, ()) + self.stmt_attribute(inner, ())]
        lines = [f"def {name}({arg}{default}):"]
        if outer and "driver" not in inside:
            lines.append(f"    nonlocal {outer}")
            body.append(f"{outer} = {outer} + 1")
        inner.names = before
        lines += self.indent([line for line in body if not self.rebinds(line)]) + [f"    return {self.expr('T', inner, 1)}"]
        scope.names[name] = "FN"
        return lines

    @staticmethod
    def rebinds(line):
        """Whether a line assigns to a bare name (which would make it local to the inner function)."""
        head = line.split("=")[0].strip().rstrip("+-*/%|")
        return "=" in line and head.strip().isidentifier() and not line.startswith(("nonlocal", "return")) and "+ 1" not in line

    def stmt_leave(self, scope, inside):
        if "loop" in inside and self.chance(0.7):
            return [f"if {self.expr('B', scope, 1)}:", f"    {self.one('break', 'continue')}"]
        if "function" in inside:
            return [f"if {self.expr('B', scope, 1)}:", f"    return {self.result(scope)}"]
        return ["pass"]

    def stmt_delete(self, scope, inside):
        return [self.rng.choice([f"del {self.holder('DT', scope)}[{self.word()}]", f"del {self.holder('LT', scope)}[0]", f"delattr({self.holder('O', scope)}, 'extra')",
                                 f"del {self.holder('O', scope)}.extra", f"{self.holder('O', scope)}.__dict__.pop('extra', None)"])]

    def stmt_unpack(self, scope, inside):
        a, b = self.new("t"), self.new("t")
        rest = self.new("lt")
        e = lambda kind: self.expr(kind, scope, 1)
        text, made = self.rng.choice([
            lambda: (f"{a}, {b} = {e('T')}, {e('T')}", {a: "T", b: "T"}), lambda: (f"{a}, *{rest} = {e('LT')}", {a: "T", rest: "LT"}), lambda: (f"({a}, {b}), {rest} = ({e('T')}, {e('T')}), {e('LT')}", {a: "T", b: "T", rest: "LT"}),
            lambda: (f"{a}, {b} = Pair({e('T')}, {e('I')})", {a: "T", b: "I"}), lambda: (f"{a}, {b} = {e('T')}.unbind(0)[:2]", {a: "T", b: "T"}), lambda: (f"*{rest}, {a} = {e('LT')}", {a: "T", rest: "LT"})])()
        scope.names |= made
        return [text]

    def result(self, scope):
        e = lambda kind: self.expr(kind, scope, 1)
        return self.rng.choice([lambda: e("T"), lambda: e("T"), lambda: f"{e('T')}, {e('T')}", lambda: e("LT"), lambda: e("DT"), lambda: e("O"), lambda: f"[{e('T')}, {e('I')}, {e('S')}]",
                                lambda: f"{{'t': {e('T')}, 'n': {e('I')}}}", lambda: f"Pair({e('T')}, {e('I')})", lambda: f"Record({e('T')}, {e('I')})", lambda: f"({e('T')}, ({e('I')}, {e('LT')}))",
                                lambda: f"{e('T')}, {e('B')}"])()
