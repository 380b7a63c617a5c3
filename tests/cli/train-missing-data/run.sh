# What is missing is named, and so is the package it is in; nothing is left behind.
"$GRADWIRE" train --help > help 2>&1 || { echo "skip: built without its trainer"; exit 77; }
fails() {
    code=0
    "$GRADWIRE" train "$@" || code=$?
    test $code = 1 || echo "exit $code: $*"
}
mkdir here
fails --images nowhere --out run
fails --model lstm --text nowhere --out run
fails --model lstm --text here --out run
printf %07000d 0 > short
fails --model lstm --text short --out run
fails --resume nowhere
fails --resume here
fails --resume here --compare dense --images nowhere
ls
