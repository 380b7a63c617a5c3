# The table of everyday names in docs/routes.md is what the command says.
python3 - "$CASE/../../../docs/routes.md" "$GRADWIRE" <<'END'
import json, re, subprocess, sys
page, gradwire = open(sys.argv[1]).read(), sys.argv[2]
run = lambda *words: json.loads(subprocess.run([gradwire, "routes", "--json", *words], check=True, capture_output=True).stdout)
rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]*) \| [^|]* \| (\d) \| (\d+) \| (\d+) \|$", page, re.M)
names = {name["name"]: name["steps"] for name in run("--names")}
assert {row[0]: row[1] for row in rows} == names, "names or steps differ"
for name, _, hops, near, far in rows:
    told = run(name, "-n", "1Mi", "-c", "cast:to=f32" if name.endswith("sum") else "natural:bits=8")
    assert (told["encodes"], told["sent"]["intra"], told["sent"]["inter"]) == (int(hops), int(near), int(far)), name


def walk(name):
    """The operands of a rank on the way, as the second table writes them."""
    n = 4 * 4096
    spec = ["-c", "natural:bits=8"] if name not in ("dense", "hier-dense") else []
    told = run(name, "-n", str(n), "--rank", "0", *spec)
    hier = "intra" in told["route"]
    size = {n: "n", n // 2: "h", n // 4: "h_node" if hier else "piece i"}
    def text(operand):
        if operand["kind"] == "none":
            return "none"
        pieces = operand["kind"] == "bundle" and f", {operand['outer'] * operand['inner']}×{operand['payloads']}"
        return size[operand["count"]] + (pieces or " dense")
    steps = told["steps"]
    return " → ".join([text(steps[0]["before"])] + [text(step["after"]) for step in steps])


ways = re.findall(r"^\| (?:no name: all forwarded, )?`([^`]+)`(?:, rank 0)? \| (n dense [^|]*) \|$", page, re.M)
assert len(ways) == 9, ways
for name, way in ways:
    name = re.sub(r"(en|de)code", r"\1code@cpu", name) if " " in name else name
    assert walk(name) == way, (name, walk(name), way)
print("as written")
END
