/* Agreement at borders: the worst status wins on all ranks, and equal inputs are checked by digest.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_AGREE_H
#define TPW_TP_AGREE_H

#include <stdint.h>

#include "tp/boot.h"

/* Collective. Every rank brings its own status and error text. All return OK if all were OK; else every rank returns the
 * status of the lowest rank among those with the worst (numerically smallest) status, and its text prefixed "rank R (host): ". */
tpw_status tpw_agree_status(tpw_boot *boot, tpw_status mine, tpw_error *err) TPW_MUST_CHECK;

/* Collective. ERR_DIVERGED when the digests are not all equal, naming `what`, the first rank that differs from rank 0 and
 * both values as 16 hex digits. */
tpw_status tpw_agree_digest(tpw_boot *boot, uint64_t digest, const char *what, tpw_error *err) TPW_MUST_CHECK;

#endif
