/* Calls that must go well, and calls that must be refused with the right words. */
#ifndef GW_TESTS_FEEDBACK_EXPECT_H
#define GW_TESTS_FEEDBACK_EXPECT_H

#include "support/check.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        const gw_status status_ = (call);                                                          \
        CHECK(status_ == GW_OK, "%s: %d", #call, (int)status_);                                    \
    } while (0)

/* The call, which is given &why, fails so, and its reason holds these words. */
#define REFUSED(status, words, call)                                                               \
    do {                                                                                           \
        gw_why why = {""};                                                                         \
        const gw_status got_ = (call);                                                             \
        CHECK(got_ == (status) && strstr(why.text, words) != NULL, "%s: %d '%s'", #call,           \
              (int)got_, why.text);                                                                \
    } while (0)

#endif
