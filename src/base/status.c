/* Names and fixed texts of the status codes. SPDX-License-Identifier: Apache-2.0 */
#include "tpworker/status.h"

const char *tpw_status_name(tpw_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text) \
    case TPW_##name:                   \
        return #name;
        TPW_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *tpw_status_text(tpw_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text) \
    case TPW_##name:                   \
        return text;
        TPW_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
