/* What things take: curves, collectives, coding. Seconds, at the mean plus `sigma` deviations. */
#ifndef GW_PLAN_COST_H
#define GW_PLAN_COST_H

#include "plan/timeline.h"

gw_status gw_cluster_check(const gw_cluster *cluster, gw_why *why);

double gw_curve_at(const gw_cost_curve *curve, double bytes, double sigma);

/* NULL: this spec was not measured on this device. An entry of the same codec with other settings stands in where
 * there is none of these. */
const gw_codec_cost *gw_cluster_codec(const gw_cluster *cluster, const gw_params *params,
                                      gw_device device);

/* Pieces to their owners, then sums: 2; else 1. */
double gw_collective_phases(const gw_move *move);
/* A collective as rank 0 and rank 1 of node 0 see it (rank 0 is every root, rank 1 stands for all others;
 * NULL where a node has one rank). Sets the track it keeps busy. */
double gw_collective_seconds(const gw_cluster *cluster, const gw_move *root, const gw_move *other,
                             double sigma, gw_track *track);
/* The same operation with next to no bytes, as it goes first where payloads' lengths depend on the data. */
double gw_lengths_seconds(const gw_cluster *cluster, const gw_move *root, const gw_move *other,
                          double sigma);
double gw_copy_seconds(const gw_cluster *cluster, double bytes, double sigma);

gw_ticks gw_ticks_of(double seconds); /* nanoseconds */

#endif
