# --total leaves the sums alone, in the table and in JSON.
"$GRADWIRE" inspect --generate 1000 --total -c natural -c cast:to=f32
"$GRADWIRE" inspect --generate 1000 --total --json -c cast:to=f32
