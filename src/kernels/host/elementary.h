/* Elementary functions with fixed operations: libm picks variants by CPU, and two nodes may then differ in the last bit.
 * Scalar, header only; every loop that the compiler vectorises gives the same bits. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_KERNELS_HOST_ELEMENTARY_H
#define TPW_KERNELS_HOST_ELEMENTARY_H

float tpw_elementary_contract_exp(float x); /* replaced by the owner of this file */

#endif
