/* Status codes and caller-owned error text of libtpworker.
 *
 * Codes are grouped by the largest thing that the failure destroys, so that a caller knows what to throw away:
 * nothing, the sequence, the worker, or the job (every rank of it). SPDX-License-Identifier: Apache-2.0 */
#ifndef TPWORKER_STATUS_H
#define TPWORKER_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TPW_BUILDING_LIBRARY)
#define TPW_API __attribute__((visibility("default")))
#else
#define TPW_API
#endif

/* X(name, value, text). One list makes the enum, the names, the texts and their test. */
#define TPW_STATUS_MAP(X)                                                       \
    X(OK, 0, "success")                                                         \
    /* nothing is lost: correct the call and repeat it */                       \
    X(ERR_ARGUMENT, -1, "invalid argument")                                     \
    X(ERR_LIMIT, -2, "over a configured limit")                                 \
    X(ERR_UNSUPPORTED, -3, "not supported here")                                \
    X(ERR_BUSY, -4, "still in use")                                             \
    /* the sequence is lost */                                                  \
    X(ERR_SEQUENCE, -20, "sequence is unusable")                                \
    /* the worker is lost */                                                    \
    X(ERR_MEMORY, -40, "out of memory")                                         \
    X(ERR_CHECKPOINT, -41, "checkpoint is malformed or of an unsupported kind") \
    X(ERR_MISSING, -42, "file is missing")                                      \
    X(ERR_RESOURCE, -43, "a needed resource is not there")                      \
    X(ERR_DEVICE, -44, "device or communicator failure")                        \
    X(ERR_IO, -45, "input or output failed")                                    \
    /* the job is lost: every rank leaves */                                    \
    X(ERR_PEER, -60, "another rank failed or stalled")                          \
    X(ERR_DIVERGED, -61, "ranks disagree")                                      \
    X(ERR_STOPPED, -62, "stopped on request")                                   \
    X(ERR_INTERNAL, -63, "internal error")

typedef enum tpw_status {
#define TPW_STATUS_ENUM(name, value, text) TPW_##name = (value),
    TPW_STATUS_MAP(TPW_STATUS_ENUM)
#undef TPW_STATUS_ENUM
} tpw_status;

#define TPW_ERROR_TEXT_MAX 512

/* Where a failing call leaves its message. Owned by the caller, may be NULL in every call. The text is one line,
 * written once by the function that decided that this is an error. Nothing is written on success. */
typedef struct tpw_error {
    tpw_status status;
    char text[TPW_ERROR_TEXT_MAX];
} tpw_error;

/* "OK", "ERR_ARGUMENT", ...; "UNKNOWN" for a value outside the list. Static storage. */
TPW_API const char *tpw_status_name(tpw_status status);

/* The fixed English text of a status, as in TPW_STATUS_MAP. Static storage. */
TPW_API const char *tpw_status_text(tpw_status status);

#ifdef __cplusplus
}
#endif
#endif
