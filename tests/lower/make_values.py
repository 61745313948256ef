"""Writes values.txt: what torch computes for calls of tests/ops/cases.txt. Run it again when an operator gets a body:

    python tests/lower/make_values.py

Inputs are not stored: the element at position s of the storage of input a is a small number made of s and a, by the
same formula here (`fill`) and in values_test.cpp. A case is the call with types, then one line of numbers for each
result. `below n`: integers are indices, from 0 to n - 1.
"""
import collections
import pathlib
import re

import torch

HERE = pathlib.Path(__file__).parent
CASES = HERE.parent / "ops" / "cases.txt"
PER_OP, ELEMENTS = 8, 130
SKIP = re.compile(r"aten::(rand|bernoulli|normal|uniform|exponential|multinomial|native_dropout$|dropout|log_normal|empty|new_empty|"
                  r".*convolution|_scaled_dot|.*pool3d|upsample_bicubic|upsample_bilinear2d_backward|.*mm$|mv$|dot$|addmv|.*fft|nonzero|_unique|sort|topk|histc|"
                  r"set_|resize|cummax|cummin|logcumsumexp|digamma|erfinv|erfc|gcd|lcm)")
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}
NAMES = {v: k for k, v in DTYPES.items()}
TYPE = re.compile(r"(f32|f64|f16|bf16|i64|i32|i16|i8|u8|bool)\[([\d, ]*)\](?:\{([\d, ]*)\})?(?:\+(\d+))?")
# Positions from data: which sizes bound them is told by the call; the least one is always right.
INDEXED = {"aten::embedding", "aten::gather", "aten::index_select", "aten::index.Tensor", "aten::_unsafe_index.Tensor",
           "aten::scatter.src", "aten::scatter.value", "aten::scatter_add", "aten::index_add", "aten::index_copy",
           "aten::index_put", "aten::_unsafe_index_put", "aten::embedding_dense_backward", "aten::nll_loss_forward",
           "aten::nll_loss_backward", "aten::max_pool2d_with_indices_backward"}

# Calls that torch's own samples lack.
MORE = ["aten::upsample_nearest2d_backward(f32[1, 2, 6, 9], [6, 9], [1, 2, 3, 3], none, none)",
        "aten::upsample_nearest2d_backward(bf16[1, 1, 8, 8], [8, 8], [1, 1, 4, 4], 2.0, 2.0)",
        "aten::upsample_nearest2d(f32[1, 2, 3, 4], [9, 8], none, none)",
        "aten::max_pool2d_with_indices(f32[1, 2, 7, 8], [3, 3], [2, 2], [1, 1], [1, 1], false)",
        "aten::max_pool2d_with_indices(f32[1, 1, 8, 8], [2, 2], [2, 2], [0, 0], [1, 1], false)",
        "aten::avg_pool2d_backward(f32[1, 2, 4, 4], f32[1, 2, 7, 7], [3, 3], [2, 2], [1, 1], false, false, none)",
        "aten::_adaptive_avg_pool2d_backward(f32[1, 2, 2, 3], f32[1, 2, 4, 6])"]


def fill(count, dtype, argument, below):
    values = []
    for s in range(count):
        h = (s * 2654435761 + argument * 40503 + 12345) & 0xFFFFFFFF
        h ^= h >> 15
        h = (h * 2246822519) & 0xFFFFFFFF
        h ^= h >> 13
        if dtype.is_floating_point:
            values.append((h >> 8) % 4096 / 512 - 4)
        elif dtype == torch.bool:
            values.append((h >> 8) % 2 == 1)
        elif below:
            values.append((h >> 8) % below)
        else:
            values.append((h >> 8) % 7 - (0 if dtype == torch.uint8 else 3))
    return torch.tensor(values, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype)


class Parser:
    def __init__(self, text, below):
        self.text, self.at, self.count, self.below = text, 0, 0, below

    def skip(self):
        while self.at < len(self.text) and self.text[self.at] in ", ":
            self.at += 1

    def value(self):
        self.skip()
        rest = self.text[self.at:]
        match = TYPE.match(rest)
        if match:
            self.at += match.end()
            return self.tensor(match)
        if rest[0] == "[":
            self.at += 1
            items = []
            while True:
                self.skip()
                if self.text[self.at] == "]":
                    self.at += 1
                    return items
                items.append(self.value())
        match = re.match(r'"([^"]*)"', rest)
        if match:
            self.at += match.end()
            return match[1]
        match = re.match(r"(tensors|floats|bools)\[\]", rest)
        if match:
            self.at += match.end()
            return []
        word = re.match(r"[^,\]\[]+", rest)[0]
        self.at += len(word)
        word = word.strip()
        known = {"none": None, "undef": None, "true": True, "false": False, "strided": torch.strided, "cpu": torch.device("cpu"),
                 "contiguous_format": torch.contiguous_format, "preserve_format": torch.preserve_format,
                 "channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d, **DTYPES}
        if word in known:
            return known[word]
        return float(word) if re.search(r"[.einf]", word) else int(word)

    def tensor(self, match):
        dtype = DTYPES[match[1]]
        sizes = [int(x) for x in match[2].split(",") if x.strip()]
        strides = []
        for size in reversed(sizes):
            strides.insert(0, strides[0] * max(1, sizes[len(sizes) - len(strides)]) if strides else 1)
        if match[3] is not None:
            strides = [int(x) for x in match[3].split(",") if x.strip()]
        offset = int(match[4] or 0)
        count = 0 if 0 in sizes else offset + sum((a - 1) * b for a, b in zip(sizes, strides)) + 1
        storage = fill(count, dtype, self.count, self.below)
        self.count += 1
        if count == 0:
            return torch.empty(sizes, dtype=dtype)
        return torch.as_strided(storage, sizes, strides, offset)


def bound(op, call):
    if op not in INDEXED:
        return 0
    return max(1, min((int(x) for m in TYPE.finditer(call) for x in m[2].split(",") if x.strip() and int(x) > 0), default=1))


def run(op, call, below):
    parser = Parser(call[call.index("(") + 1:-1], below)
    args = []
    while True:
        parser.skip()
        if parser.at >= len(parser.text):
            break
        args.append(parser.value())
    name, _, overload = op[6:].partition(".")
    function = getattr(getattr(torch.ops.aten, name), overload or "default")
    positional, named = [], {}
    for schema, arg in zip(function._schema.arguments, args):
        if schema.kwarg_only:
            named[schema.name] = arg
        else:
            positional.append(arg)
    with torch.no_grad():
        made = function(*positional, **named)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def number(x):
    if isinstance(x, bool):
        return str(int(x))
    if isinstance(x, int):
        return str(x)
    return f"{x:.8g}"


def main():
    torch.manual_seed(0)
    by_op = collections.defaultdict(list)
    for line in CASES.read_text().splitlines():
        call, _, results = line.rpartition(" -> ")
        op = call.split("(")[0]
        if "raises" in results or "same" in results or SKIP.match(op) or re.search(r"\bc(32|64|128)\b|complex|cuda", line):
            continue
        by_op[op].append(call)
    for call in MORE:
        by_op[call.split("(")[0]].insert(0, call)
    lines = []
    for op, calls in sorted(by_op.items()):
        # first one of each element type and layout, then more of the rest
        seen, chosen = set(), []
        for call in calls:
            types = [m for m in TYPE.finditer(call)]
            key = (types[0][1], types[0][3] is not None, types[0][4] is not None, "[]" in call) if types else call
            small = all(eval("*".join(m[2].split(",")) or "1") <= ELEMENTS for m in types)
            if small and (key not in seen or call in MORE):
                seen.add(key)
                chosen.append(call)
        step = max(1, len(chosen) // PER_OP)
        for call in chosen[::step][:PER_OP + 2]:
            below = bound(op, call)
            try:
                results = run(op, call, below)
            except Exception as error:  # a call that these values make wrong
                print(call, "|", str(error).splitlines()[0])
                continue
            if not all(r is None or isinstance(r, torch.Tensor) and r.dtype in NAMES for r in results):
                continue
            if any(r is not None and r.numel() > 2 * ELEMENTS for r in results):
                continue
            if below:
                lines.append(f"below {below}")
            lines.append(call)
            for r in results:
                if r is None:
                    lines.append("= undef")
                else:
                    kind = f"{NAMES[r.dtype]}[{', '.join(map(str, r.shape))}]"
                    lines.append(" ".join([f"= {kind}"] + [number(x) for x in r.reshape(-1).tolist()]))
    (HERE / "values.txt").write_text("\n".join(lines) + "\n")
    print(len(lines), "lines")


main()
