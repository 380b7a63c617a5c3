"$GRADWIRE" routes hier-gather -c dither:bits=4 -n 10000 --ranks 4 --ranks-per-node 2 --rank 1 --json
