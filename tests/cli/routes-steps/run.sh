"$GRADWIRE" routes sra -c natural:bits=8 -n 100003 --rank 3
"$GRADWIRE" routes "intra:reduce . encode@cpu . inter:gather . inter:broadcast . intra:broadcast . decode@cpu" -c sign -n 100003 --rank 1
"$GRADWIRE" routes sum -c randk:density=0.1 -n 1000 --ranks 3 --ranks-per-node 0
