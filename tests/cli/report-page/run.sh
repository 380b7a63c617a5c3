# One file that loads nothing, and that no text of a run can break out of.
python3 - <<'P'
import make_runs
evil = "</script><script>alert(1)</script><!-- & \"'"
run = make_runs.make(spec="dense", steps=20)
run["layers"][1]["name"] = evil
run["config"]["data"] = "/home/who/<i>&data"
make_runs.write("runs/a", run)
run = make_runs.make(spec="natural:bits=8", steps=20, done=7, state="failed", error=evil)
run["config"]["data"] = "/home/who/<i>&data"
make_runs.write("runs/b", run)
P
"$GRADWIRE" report runs -o page.html
"$GRADWIRE" report runs/a/ runs/b -o again.html
cmp page.html again.html
python3 - <<'P'
import html.parser, json, re

evil = "</script><script>alert(1)</script><!-- & \"'"
text = open("page.html").read()


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.words, self.inside = [], [], "", None

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside != "style":
            self.words += data


page = Page()
page.feed(text)
scripts = [a for t, a in page.tags if t == "script"]
assert len(scripts) == 2 and not any("src" in a for a in scripts), scripts
data = json.loads(page.scripts[0])
assert data["ways"][0]["layers"][1]["name"] == evil
assert page.words.count(evil) == 1, page.words  # the error
assert "<i>&data" in page.words and "/home/who" not in text, page.words
for tag, attributes in page.tags:
    for name in ("src", "href", "srcset", "action"):
        assert attributes.get(name, "data:,") == "data:,", (tag, attributes)
found = re.search(r"@import|url\((?!#|[\"']?data:)|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
assert not found, found
assert "default-src 'none'" in text
assert not re.search(r"\{\{[a-z_]+\}\}", text), "a part was not filled in"
P
ls
