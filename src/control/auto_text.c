/* A decision in words, and what it sends. */
#include "control/auto.h"

#include <math.h>
#include <stdio.h>

const char *gw_auto_reason_name(gw_auto_reason reason)
{
    static const char *const NAMES[] = {"start", "periodic",  "slower",     "faster",   "error",
                                        "quiet", "diverging", "non_finite", "recovered"};
    return (unsigned)reason < sizeof NAMES / sizeof *NAMES ? NAMES[reason] : "unknown";
}

const char *gw_auto_outcome_name(gw_auto_outcome outcome)
{
    static const char *const NAMES[] = {"switched", "same", "small_gain", "dense", "failed"};
    return (unsigned)outcome < sizeof NAMES / sizeof *NAMES ? NAMES[outcome] : "unknown";
}

void gw_auto_say_reason(gw_step_auto *u)
{
    char *text = u->reason;
    const size_t size = sizeof u->reason;
    const gw_auto_judge *j = &u->judge;
    const double expected = j->predicted * j->calibration;
    switch (u->next.reason) {
    case GW_AUTO_START:
        (void)snprintf(text, size, "measured the first steps");
        break;
    case GW_AUTO_SLOWER:
    case GW_AUTO_FASTER:
        if (j->wide != 0) {
            (void)snprintf(text, size, "the link has become much faster");
            break;
        }
        (void)snprintf(text, size, "steps took %.4g ms, %.4g were expected",
                       1e3 * u->watch.measured_seconds, 1e3 * expected);
        break;
    case GW_AUTO_ERROR:
        (void)snprintf(text, size, "error over noise %.3g, above %.3g: alpha is now %.3g",
                       u->watch.noise_ratio, j->limit, j->alpha);
        break;
    case GW_AUTO_QUIET:
        (void)snprintf(text, size, "error over noise %.3g, far below %.3g: alpha is now %.3g",
                       u->watch.noise_ratio, j->limit, j->alpha);
        break;
    case GW_AUTO_RECOVERED:
        (void)snprintf(text, size, "training has recovered: alpha is now %.3g", j->alpha);
        break;
    default:
        (void)snprintf(text, size, "measured again");
    }
}

void gw_auto_describe(gw_control *c, const gw_why *failed)
{
    gw_step_auto *u = gw_auto_of(c);
    gw_auto_decision *d = &u->next;
    char what[176];
    const double ms = 1e3 * d->predicted_seconds, mbit = 8e-6 * d->link_bytes_per_second;
    switch (d->outcome) {
    case GW_AUTO_SWITCHED:
        (void)snprintf(
            what, sizeof what,
            "%u of %u layers change codec, route or bucket: %.4g ms/step predicted, dense "
            "%.4g, at %.4g Mbit/s",
            d->changed, u->control.n, ms, 1e3 * d->dense_seconds, mbit);
        break;
    case GW_AUTO_SAME:
        (void)snprintf(what, sizeof what,
                       "the plan in force is still the best known, %.4g ms/step predicted, at "
                       "%.4g Mbit/s",
                       ms, mbit);
        break;
    case GW_AUTO_SMALL_GAIN:
        (void)snprintf(what, sizeof what,
                       "no other plan gains enough, the plan in force is kept: %.4g ms/step "
                       "predicted, at %.4g Mbit/s",
                       ms, mbit);
        break;
    default:
        (void)snprintf(what, sizeof what, "the plan is kept: %.140s", failed->text);
    }
    (void)snprintf(d->text, sizeof d->text, "%s; %s", u->reason, what);
}

void gw_auto_describe_dense(gw_step_auto *u, const gw_auto_seen *w)
{
    gw_auto_decision *d = &u->next;
    if (d->reason == GW_AUTO_NON_FINITE) {
        (void)snprintf(d->text, sizeof d->text,
                       "%u of the last %d steps had a NaN or infinity: nothing is compressed until "
                       "that is over",
                       w->bad, GW_AUTO_WINDOW);
    } else {
        (void)snprintf(d->text, sizeof d->text,
                       "the loss is %.4g and was %.4g: nothing is compressed until it is back, or "
                       "for 100 steps",
                       w->loss, u->judge.least);
    }
}
