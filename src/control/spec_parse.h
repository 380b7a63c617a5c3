/* Words of a line of settings: "adapt:period=50,alpha=2/topk:density=0.01". */
#ifndef GW_CONTROL_SPEC_PARSE_H
#define GW_CONTROL_SPEC_PARSE_H

#include <stddef.h>

/* `n` characters of `word` as a string of its own; 0: there is no room. */
int gw_spec_word(char *text, size_t room, const char *word, size_t n);
/* The finite number behind the word's '='; 0: there is none. */
int gw_spec_number(const char *text, double *value);

#endif
