/* The rules: what windows of steps say about the plan in force. docs/auto.md has them with their reasons. */
#include "control/auto.h"

#include <math.h>

static const double BAND = GW_AUTO_BAND; /* of a step's time; of the lowest loss, to be back */
/* Times what is expected. A step's time: one window is enough. An error over its limit, a loss over the lowest one. A
 * link: a period measures it again; twice as much counts whatever steps take, four times as much in one window. */
static const double FAR = 1.5;
static const uint32_t IN_A_ROW = 2;      /* windows */
static const uint32_t MOST_PATIENCE = 8; /* times as many */
static const uint32_t LONG =
    10; /* windows that nothing is compressed; periods without a try of an alpha that was too much */
static const double LEAST_ALPHA = GW_AUTO_LEAST_ALPHA, MOST_ALPHA = GW_AUTO_MOST_ALPHA;
static const double QUIET = 0.25;    /* of the limit */
static const double RISES = 6;       /* usual rises of the loss */
static const uint32_t BAD_STEPS = 3; /* of a window */
static const double NEW = 0.5;       /* weight of a window; of a rise of the loss, 1 / LONG */
static const double CREEP = 0.01;    /* of the lowest loss, a window: what was easy may be over */

void gw_auto_judge_begin(gw_auto_judge *j, double limit, double alpha)
{
    const double none = (double)NAN;
    *j = (gw_auto_judge){.limit = limit,
                         .alpha = alpha,
                         .predicted = none,
                         .calibration = none,
                         .seconds = none,
                         .seconds_before = none,
                         .patience = 1,
                         .noise = none,
                         .squares = none,
                         .squares_then = none,
                         .failed_alpha = none,
                         .smooth = none,
                         .least = none,
                         .before = none,
                         .rise = none,
                         .link = none,
                         .fallen = GW_AUTO_NO_REASON};
}

static double mix(double old, double now, double weight)
{
    return isnan(old) ? now : old + weight * (now - old);
}

double gw_auto_noise_ratio(const gw_auto_judge *j, double lost)
{
    const double grown = j->squares / j->squares_then;
    return lost == 0 ? 0 : lost * (isfinite(grown) ? grown : 1) / j->noise;
}

/* ---- time ---- */

static int judge_time(gw_auto_judge *j, double seconds)
{
    if (isnan(j->predicted) || !isfinite(seconds)) {
        return GW_AUTO_NO_REASON;
    }
    j->seconds = seconds;
    if (isnan(j->calibration)) { /* a plan that makes steps longer is none */
        const int worse = seconds > (1 + BAND) * j->seconds_before;
        j->calibration = (worse ? j->seconds_before : seconds) / j->predicted;
    }
    const double ratio = seconds / (j->predicted * j->calibration);
    const int32_t side = ratio > 1 + BAND ? 1 : ratio < 1 - BAND ? -1 : 0;
    const int32_t counts = ratio > FAR || ratio < 1 / FAR ? (int32_t)IN_A_ROW * side : side;
    j->outside = side == 0 || j->outside * side < 0 ? counts : j->outside + counts;
    const int32_t enough = (int32_t)(IN_A_ROW * j->patience);
    return j->outside >= enough    ? GW_AUTO_SLOWER
           : j->outside <= -enough ? GW_AUTO_FASTER
                                   : GW_AUTO_NO_REASON;
}

/* A plan for a slow link may hide it so well that steps do not show that it has become fast. The other way round they do. */
static int judge_link(gw_auto_judge *j, double link)
{
    const uint32_t counts = link >= 4 * FAR ? IN_A_ROW : 1; /* that far one window is enough */
    j->link = link > 0 ? mix(j->link, link, NEW) : j->link;
    j->wide = link >= 2 * FAR ? j->wide + counts : 0;
    return j->wide >= IN_A_ROW * j->patience ? GW_AUTO_FASTER : GW_AUTO_NO_REASON;
}

/* ---- error ---- */

static int judge_noise(gw_auto_judge *j, const gw_auto_seen *w)
{
    if (isfinite(w->noise) && isfinite(w->squares)) {
        j->noise = mix(j->noise, w->noise, NEW);
        j->squares = mix(j->squares, w->squares, NEW);
        j->squares_then = isnan(j->squares_then) ? j->squares : j->squares_then;
    }
    j->loud = gw_auto_noise_ratio(j, j->lost) > FAR * j->limit ? j->loud + 1 : 0;
    return j->loud >= IN_A_ROW && j->alpha > LEAST_ALPHA ? GW_AUTO_ERROR : GW_AUTO_NO_REASON;
}

/* ---- loss ---- */

static int judge_loss(gw_auto_judge *j, const gw_auto_seen *w)
{
    if (!w->told) {
        return GW_AUTO_NO_REASON;
    }
    if (isfinite(w->loss)) {
        j->smooth = mix(j->smooth, w->loss, NEW);
    }
    const double above = j->smooth - j->least;
    const int high = !isfinite(w->loss) || (j->losses >= 3 && above > (FAR - 1) * fabs(j->least) &&
                                            above > RISES * j->rise);
    j->high = high ? j->high + 1 : 0;
    j->losses++;
    if (high) {
        return j->high >= IN_A_ROW ? GW_AUTO_DIVERGING : GW_AUTO_NO_REASON;
    }
    if (!isnan(j->before)) {
        j->rise = mix(j->rise, fmax(w->loss - j->before, 0), 1.0 / LONG);
    }
    j->before = w->loss;
    const double crept = j->least + CREEP * fabs(j->least);
    j->least = isnan(crept) || j->smooth < crept ? j->smooth : crept;
    return GW_AUTO_NO_REASON;
}

/* While nothing is compressed. */
static int judge_fall(gw_auto_judge *j, const gw_auto_seen *w)
{
    j->clean = w->bad == 0 ? j->clean + 1 : 0;
    if (w->told && isfinite(w->loss)) {
        j->smooth = mix(j->smooth, w->loss, NEW);
    }
    const double above = j->smooth - j->least;
    const int back = !(above > BAND * fabs(j->least)) || !(above > RISES * j->rise);
    const int late = w->step >= j->fallen_at + LONG * GW_AUTO_WINDOW;
    const int over = j->clean >= IN_A_ROW && (late || j->fallen == GW_AUTO_NON_FINITE || back);
    return over ? GW_AUTO_RECOVERED : GW_AUTO_NO_REASON;
}

/* ---- all of it ---- */

int gw_auto_judge_window(gw_auto_judge *j, const gw_auto_seen *w, int stale, int busy)
{
    if (j->fallen != GW_AUTO_NO_REASON) {
        (void)judge_noise(j, w);
        return busy ? GW_AUTO_NO_REASON : judge_fall(j, w);
    }
    const int loss = judge_loss(j, w), noise = judge_noise(j, w);
    const int link = stale || busy ? GW_AUTO_NO_REASON : judge_link(j, w->link);
    const int steps = stale || busy ? GW_AUTO_NO_REASON : judge_time(j, w->seconds);
    const int time = steps != GW_AUTO_NO_REASON ? steps : link;
    if (w->bad >= BAD_STEPS) {
        return GW_AUTO_NON_FINITE;
    }
    if (loss != GW_AUTO_NO_REASON) {
        return loss;
    }
    return busy ? GW_AUTO_NO_REASON : noise != GW_AUTO_NO_REASON ? noise : time;
}

gw_auto_reason gw_auto_judge_period(gw_auto_judge *j)
{
    j->patience = j->patience > 1 ? j->patience / 2 : 1;
    j->calm++;
    const double most =
        j->calm < LONG && !isnan(j->failed_alpha) ? 0.9 * j->failed_alpha : MOST_ALPHA;
    const double more = fmin(FAR * j->alpha, most);
    const int quiet = gw_auto_noise_ratio(j, j->lost) < QUIET * j->limit && !isnan(j->noise);
    if (!quiet || more <= j->alpha) {
        return GW_AUTO_PERIODIC;
    }
    j->alpha = more;
    return GW_AUTO_QUIET;
}

/* At a period steps take what they should, so that a link that has become slower harms nobody; a faster one glances see. An error has nothing to
 * do with time. */
int gw_auto_judge_wants_link(const gw_auto_judge *j, gw_auto_reason reason)
{
    const int by_period = reason == GW_AUTO_PERIODIC || reason == GW_AUTO_QUIET;
    return reason != GW_AUTO_ERROR && !(by_period && j->link < FAR);
}

void gw_auto_judge_act(gw_auto_judge *j, gw_auto_reason reason, uint64_t step)
{
    const double half = j->alpha / 2 > LEAST_ALPHA ? j->alpha / 2 : LEAST_ALPHA;
    j->loud = 0;
    switch (reason) {
    case GW_AUTO_ERROR:
        j->failed_alpha = j->alpha;
        j->calm = 0;
        j->alpha = half;
        break;
    case GW_AUTO_DIVERGING:
    case GW_AUTO_NON_FINITE:
        j->fallen = (int)reason;
        j->fallen_at = step;
        j->clean = 0;
        break;
    case GW_AUTO_RECOVERED:
        j->alpha = half;
        j->fallen = GW_AUTO_NO_REASON;
        j->high = 0;
        j->least = j->smooth > j->least ? j->smooth : j->least; /* or it would fall again at once */
        break;
    default:
        break;
    }
}

void gw_auto_judge_bound(gw_auto_judge *j, gw_auto_reason reason, int switched, double predicted,
                         double lost)
{
    const int by_time = reason == GW_AUTO_SLOWER || reason == GW_AUTO_FASTER;
    const uint32_t longer = 2 * j->patience < MOST_PATIENCE ? 2 * j->patience : MOST_PATIENCE;
    j->patience = switched ? 1 : by_time ? longer : j->patience;
    const int may_be_longer = reason == GW_AUTO_START || reason == GW_AUTO_ERROR ||
                              reason == GW_AUTO_DIVERGING || reason == GW_AUTO_NON_FINITE ||
                              reason == GW_AUTO_RECOVERED || !switched;
    j->seconds_before = may_be_longer ? (double)NAN : j->seconds;
    const double expected = j->predicted * j->calibration;
    j->predicted = predicted;
    /* nothing changed: the times that were expected still are, unless time itself was the reason */
    j->calibration = switched || by_time ? (double)NAN : expected / predicted;
    j->outside = 0;
    j->wide = 0;
    j->loud = 0;
    j->lost = lost;
}
