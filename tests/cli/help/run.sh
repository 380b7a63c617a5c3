"$GRADWIRE" --help | head -1
"$GRADWIRE" help | head -1
"$GRADWIRE" --version
for command in codec encode decode inspect routes report adapt bench plan advise simulate train; do
    "$GRADWIRE" help $command > asked
    "$GRADWIRE" $command --help > option
    cmp asked option
    head -1 option
    grep -q '^example:' option || echo "$command has no example"
    grep -q "^  gradwire $command" option || echo "the example is not about $command"
done
"$GRADWIRE" codec list --help | head -1
# Help comes from the tables that are parsed with.
"$GRADWIRE" encode --help | grep -e '^ *--seed'
