/* A model on some ranks with everything it needs, for tests that run passes by hand. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_ENGINE_H
#define TPW_TESTS_ENGINE_H

#include <mpi.h>

#include "kernels/ops.h"
#include "kernels/rope.h"
#include "model/pass.h"
#include "tp/boot_mpi.h"

typedef struct engine {
    tpw_boot *boot;
    tpw_comm *comm;     /* of host memory */
    tpw_comm *gpu_comm; /* NULL on the host backend */
    tpw_exec *exec;
    tpw_pool *pool;
    tpw_config config;
    tpw_partition part;
    tpw_model *model;
    tpw_state *state;
    tpw_pass *pass;
    int32_t *pages; /* 1, 2, 3, ...: one sequence in slot 1 owns all pages in order */
} engine;

/* Collective over comm. positions: planned length; rows, logits: limits of a pass. */
tpw_status engine_open(engine *e, const char *folder, tpw_dtype act, int32_t positions, int32_t rows, int32_t logits,
                       MPI_Comm comm, tpw_error *err);
void engine_close(engine *e);

/* Runs tokens[0..count) of one sequence at positions pos.. as one segment in slot 1. */
tpw_status engine_run(engine *e, const int32_t *tokens, int32_t count, int64_t pos, tpw_error *err);

/* The MTP module on rows at positions pos.., row i with tokens[i] (the one after its position) and row i of `hidden`. */
tpw_status engine_mtp(engine *e, const int32_t *tokens, int32_t count, int64_t pos, const tpw_mat *hidden,
                      tpw_error *err);

/* Arg-max of rows of ws.y over the whole vocabulary; -1: none. */
tpw_status engine_head(engine *e, const int32_t *rows, int32_t count, int32_t *best, tpw_error *err);

/* A JSON list of integers into a malloc'ed array. */
struct json_t;
int32_t *engine_ints(const struct json_t *list, int32_t *count);

#endif
