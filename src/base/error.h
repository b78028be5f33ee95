/* Writes and passes on errors: the four macros and the one function that every failing path uses.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_BASE_ERROR_H
#define TPW_BASE_ERROR_H

#include <stddef.h>

#include "tpworker/status.h"

#define TPW_MUST_CHECK         __attribute__((warn_unused_result))
#define TPW_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Sets *err (if not NULL) to status and the formatted line, cut at TPW_ERROR_TEXT_MAX; line breaks and other control
 * characters become spaces. The arguments may point into *err. Returns status, so that a caller can
 * `return tpw_fail(...)`. */
tpw_status tpw_fail(tpw_error *err, tpw_status status, const char *format, ...) TPW_PRINTF(3, 4);

/* Puts "prefix: " (formatted) before the text that a callee left in *err. For callers that know more (file, rank). A
 * prefix is cut at half of TPW_ERROR_TEXT_MAX, so that a long path does not push the cause out. */
void tpw_error_prefix(tpw_error *err, const char *format, ...) TPW_PRINTF(2, 3);

/* What error and log text have in common: one line, whole characters. In place: control characters (C0, DEL, C1) of
 * NUL-terminated UTF-8 text become spaces. */
void tpw_text_clean(char *text);

/* The length, at most `bytes`, at which `text` (at least that long) can be cut without splitting a character. */
size_t tpw_text_cut(const char *text, size_t bytes);

/* Returns from the calling function with the status of a failed expression. */
#define TPW_TRY(expr)                        \
    do {                                     \
        tpw_status tpw_try_status_ = (expr); \
        if (tpw_try_status_ != TPW_OK)       \
            return tpw_try_status_;          \
    } while (0)

/* Stores the status of an expression in the variable `st` and jumps to the cleanup label when it failed. */
#define TPW_TRY_GOTO(st, expr, label) \
    do {                              \
        (st) = (expr);                \
        if ((st) != TPW_OK)           \
            goto label;               \
    } while (0)

#endif
