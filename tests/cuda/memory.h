/* Memory that a device sees: its own, or the process's where the device is emulated. Any failure ends the program with a
 * sentence. */
#ifndef GW_TESTS_CUDA_MEMORY_H
#define GW_TESTS_CUDA_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `bytes` of their own allocation, so that a checker sees the first byte beyond; aligned to 256. */
void *device_take(size_t bytes);
void device_give(void *p); /* accepts NULL */
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
void device_fill(void *p, int byte, size_t bytes);
void device_wait(void); /* for all that was launched; says what went wrong */
void *device_stream(void);

#ifdef __cplusplus
}
#endif
#endif
