/* What compression would cost, before anything is compressed: for one tensor the squared error
 * ‖G − Ĝ‖² of every density, every bit width or every rank, each from one go over the numbers. For whoever
 * chooses levels. docs/codecs.md, "Error tables".
 *
 * G is `in`, or in + residual in fp32 where a residual is given; Ĝ is what gw_decode makes of it, in fp32. Where
 * a codec rounds at random the table holds the exact expectation. Errors are fp64, the same on every
 * instruction set. A NaN or infinity in G is GW_ERR_RANGE, and `why` names its element; on failure the table is
 * untouched. Everything runs on the calling thread: exec->pool is not used (gw_errors_rank: BLAS may have
 * threads of its own). */
#ifndef GRADWIRE_ERRORS_H
#define GRADWIRE_ERRORS_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits 2 … 8, the narrowest first. */
enum { GW_ERRORS_LEAST_BITS = 2, GW_ERRORS_MOST_BITS = 8, GW_ERRORS_WIDTHS = 7 };

/* Bytes of exec->workspace for the tables below but gw_errors_rank; `densities` for gw_errors_topk, 0 for the
 * others. Does not depend on the tensor. */
GW_API gw_status gw_errors_workspace(size_t densities, size_t *bytes);

/* `params` is a topk, whose own density is not looked at: squared[i] is its error at densities[i], for all `n` of
 * them in three readings of the tensor, in any order, exactly as many elements being kept as topk keeps.
 * With values=natural the expectation, up to elements 2^126 below the largest of their block. */
GW_API gw_status gw_errors_topk(const gw_params *params, const gw_exec *exec, const gw_tensor *in,
                                const float *residual, const double *densities, size_t n,
                                double *squared, gw_why *why);

/* `params` is a dither or ndither, whose own bits are not looked at; bucket, norm and rounding are. squared[b − 2]
 * is its error with b bits: the expectation, or with rounding=nearest the error itself. */
GW_API gw_status gw_errors_dither(const gw_params *params, const gw_exec *exec, const gw_tensor *in,
                                  const float *residual, double squared[GW_ERRORS_WIDTHS],
                                  gw_why *why);

/* The expected error of natural, which has one level: of bits=9, and of bits=8 up to elements 2^126 below the largest
 * of their block. */
GW_API gw_status gw_errors_natural(const gw_exec *exec, const gw_tensor *in, const float *residual,
                                   double *squared, gw_why *why);

/* ‖G‖²: what is lost where nothing is sent. */
GW_API gw_status gw_errors_norm(const gw_exec *exec, const gw_tensor *in, const float *residual,
                                double *squared, gw_why *why);

/* The tensor as a matrix of `rows` × `cols`, row after row: squared[r] is the error of its best approximation of rank
 * r, r = 0 … max_rank, from one factorisation at the top rank (a randomised range finder, its start drawn
 * from `seed`). Never increases with r; never below the exact tail of squared singular values but for rounding (1e-12
 * of ‖G‖²), and on spectra that fall like a power within 1 % of it. 0 from min(rows, cols) on. Sums are BLAS's:
 * equal runs on unlike machines may differ in the last digits. GW_ERR_UNSUPPORTED in a build without BLAS. */
GW_API gw_status gw_errors_rank_workspace(size_t rows, size_t cols, size_t max_rank, size_t *bytes);
GW_API gw_status gw_errors_rank(const gw_exec *exec, const gw_tensor *in, const float *residual,
                                size_t rows, size_t cols, size_t max_rank, uint64_t seed,
                                double *squared, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
