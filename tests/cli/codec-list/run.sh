"$GRADWIRE" codec list
