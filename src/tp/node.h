/* Who shares my host. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TP_NODE_H
#define TPW_TP_NODE_H

#include "tp/boot.h"

typedef struct tpw_node {
    int rank;  /* among the ranks on this host, by boot rank */
    int size;  /* ranks on this host */
    int hosts; /* hosts in the job */
} tpw_node;

/* Collective: gathers host names (boot->host). */
tpw_status tpw_node_find(tpw_boot *boot, tpw_node *out, tpw_error *err) TPW_MUST_CHECK;

#endif
