/* Requests to stop: SIGTERM, SIGINT and SIGUSR1 set a flag that the step loop looks at. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_CLI_STOP_H
#define TPW_CLI_STOP_H

/* Takes the three signals and ignores SIGPIPE (a closed reader is then an error of write). A second SIGTERM or SIGINT
 * leaves at once with the code of "stopped". Call once, early. */
void tpw_stop_install(void);

/* The signal that asked for a stop, 0 if none did. */
int tpw_stop_signal(void);

#endif
