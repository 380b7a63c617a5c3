"$GRADWIRE" routes --additive
"$GRADWIRE" routes --devices gpu | grep flat
"$GRADWIRE" routes --devices gpu | grep -cv flat
"$GRADWIRE" routes --devices cpu | grep -cv encode
