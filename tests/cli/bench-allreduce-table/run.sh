# Every spec a line, the uncompressed route above them; columns line up.
"$GRADWIRE" bench allreduce -c dither:bits=4 -c cast:to=bf16 -n 5000 --ranks 3 --rounds 1 > table
"$GRADWIRE" bench allreduce -c natural -n 1 --ranks 1 --rounds 1 > alone
cut -c1-31 table
head -4 table | awk '{ print length($0) }' | sort -u | wc -l
grep -c '^natural' alone
