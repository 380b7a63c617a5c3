/* When a thread gets its turn, where there are more threads than cores. Wishes: what the system does not grant changes
 * nothing but time. */
#ifndef GW_BASE_PRIORITY_H
#define GW_BASE_PRIORITY_H

/* The calling thread works little and often, and others wait for it: as soon as it wakes, for a moment. */
void gw_turn_soon(void);
void gw_turn_as_usual(void);
/* The calling thread can wait: when nobody else wants the core, and a little of one that is never free. */
void gw_turn_late(void);

#endif
