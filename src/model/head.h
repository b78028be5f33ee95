/* The vocabulary-parallel head: logits, arg-max, and the exchange that lets every rank decide alike.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_MODEL_HEAD_H
#define TPW_MODEL_HEAD_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of one rank's record in the exchange for `rows` rows. */
size_t tpw_exchange_bytes(int32_t rows);

#endif
