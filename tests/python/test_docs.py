"""The pages tell the truth: their examples are run, and the graphs they show are the graphs we record.

In README.md, CONTRIBUTING.md and docs/ a block fenced with ```python example``` is executed as a file model.py. A block
```graph example``` behind it is the text of the first graph of magneto.explain(f)(*args), with the `f` and `args` that
the Python block left; a second one, the second graph. ```functional```, ```loop```, ```kernels``` and ```plan example``` are what
the compiler makes of the first graph. After a change of a language,

    .venv/bin/python tests/python/test_docs.py

writes the blocks anew; read the difference before you commit it.
"""

import linecache
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(?P<kind>python|graph|functional|loop|kernels|plan) example\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def run_block(text):
    """Executes a block as the file model.py: its lines are found by tracebacks and by the places in a graph."""
    linecache.cache["model.py"] = (len(text), None, text.splitlines(keepends=True), "model.py")
    names = {"__name__": "model"}
    exec(compile(text, "model.py", "exec"), names)
    return names


STAGES = {"functional": "graph", "loop": "loop", "kernels": "fusion", "plan": "plan"}  # on the pages, in the report


class Texts:
    """What we make of a block's f and args, one text after the other of each kind."""

    def __init__(self, code):
        import magneto

        names = run_block(code)
        magneto.reset()
        self.graphs = magneto.explain(names["f"])(*names["args"]).graphs
        self.next = 0

    def of(self, kind):
        if kind in STAGES:
            return self.graphs[0].code[0].texts[STAGES[kind]].strip()
        self.next += 1
        return self.graphs[self.next - 1].text.strip()


def examples(page):
    """The Python blocks of a page, each with the blocks of texts that follow it."""
    found = []
    for block in BLOCK.finditer(page.read_text()):
        if block["kind"] == "python":
            found.append((block["text"], []))
        else:
            assert found, f"{page.name}: a text stands before the first Python block"
            found[-1][1].append((block["kind"], block["text"].strip()))
    return found


EXAMPLES = [pytest.param(*example, id=f"{page.stem}-{number}") for page in PAGES if page.exists()
            for number, example in enumerate(examples(page))]


@pytest.mark.parametrize("code, shown", EXAMPLES)
def test_the_code_of_the_pages_runs(code, shown):
    run_block(code)


@pytest.mark.needs_capture
@pytest.mark.parametrize("code, shown", [example for example in EXAMPLES if example.values[1]])
def test_the_texts_on_the_pages_are_those_we_make(code, shown):
    texts = Texts(code)
    for kind, text in shown:
        assert texts.of(kind) == text, kind


def test_the_architecture_page_carries_an_example():
    assert any(shown for _, shown in examples(ROOT / "docs" / "architecture.md"))


def write_anew(page):
    code, texts = "", None

    def replace(block):
        nonlocal code, texts
        if block["kind"] == "python":
            code, texts = block["text"], None
            return block[0]
        if texts is None:  # asked for only here: an example without a text defines no f
            texts = Texts(code)
        return f"```{block['kind']} example\n{texts.of(block['kind'])}\n```"

    old = page.read_text()
    new = BLOCK.sub(replace, old)
    if new != old:
        page.write_text(new)
        print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    for path in PAGES:
        write_anew(path)
