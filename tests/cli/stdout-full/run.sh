# A result that cannot be written is a failure.
test -e /dev/full || { echo "no /dev/full here"; exit 77; }
"$GRADWIRE" codec list > /dev/full
