/* The scheduler of the public contract, a second time. SPDX-License-Identifier: Apache-2.0 */
#include "model_scheduler.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

const char *model_seen_name(int seen)
{
    static const char *const names[] = {
#define MODEL_SEEN_NAME(name) #name,
        MODEL_SEEN_MAP(MODEL_SEEN_NAME)
#undef MODEL_SEEN_NAME
    };

    return names[seen];
}

void model_init(model_scheduler *m, const model_limits *limits)
{
    memset(m, 0, sizeof *m);
    m->limits = *limits;
    m->pages_free = limits->pages;
}

void model_fini(model_scheduler *m)
{
    for (int32_t i = 0; i < m->announced_count; i++)
        free(m->announced[i]);
    for (int32_t i = 0; i < m->waiting_count; i++)
        free(m->waiting[i]);
    for (int32_t i = 0; i < m->running_count; i++)
        free(m->running[i]);
    m->announced_count = m->waiting_count = m->running_count = 0;
}

static model_sequence *find_in(model_sequence **list, int32_t count, uint64_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (list[i]->id == id)
            return list[i];
    return NULL;
}

static model_sequence *find(model_scheduler *m, uint64_t id)
{
    model_sequence *s = find_in(m->running, m->running_count, id);

    if (s == NULL)
        s = find_in(m->waiting, m->waiting_count, id);
    return s != NULL ? s : find_in(m->announced, m->announced_count, id);
}

static void take_out(model_sequence **list, int32_t *count, const model_sequence *s)
{
    int32_t kept = 0;

    for (int32_t i = 0; i < *count; i++)
        if (list[i] != s)
            list[kept++] = list[i];
    *count = kept;
}

static int32_t pages_for(const model_limits *l, const tpw_request *r)
{
    return (r->count + r->max_tokens + l->k + l->page_size - 1) / l->page_size;
}

/* Says no, or OK. What counts is that the call has the fault, not which of several is named. */
static tpw_status judge(model_scheduler *m, const tpw_request *r, tpw_status *also)
{
    const model_limits *l = &m->limits;
    bool argument = false, limit = false;

    if (r->ids == NULL || r->count < 1 || r->max_tokens < 1) {
        m->seen[SEEN_refused_empty]++;
        return TPW_ERR_ARGUMENT;
    }
    for (int32_t i = 0; i < r->count && !argument; i++)
        if (r->ids[i] < 0 || r->ids[i] >= l->vocab) {
            argument = true;
            m->seen[SEEN_refused_token]++;
        }
    if (find(m, r->id) != NULL) {
        argument = true;
        m->seen[SEEN_refused_duplicate]++;
    }
    if (r->count + r->max_tokens > l->context) {
        limit = true;
        m->seen[SEEN_refused_context]++;
    } else if (pages_for(l, r) > l->pages) {
        limit = true;
        m->seen[SEEN_refused_pages]++;
    }
    if (limit && argument)
        *also = TPW_ERR_LIMIT;
    return argument ? TPW_ERR_ARGUMENT : limit ? TPW_ERR_LIMIT : TPW_OK;
}

tpw_status model_admit(model_scheduler *m, const tpw_request *request, tpw_status *also)
{
    model_sequence *s;
    tpw_status st;

    *also = TPW_OK;
    st = judge(m, request, also);
    if (*also == TPW_OK)
        *also = st;
    if (st != TPW_OK)
        return st;
    s = calloc(1, sizeof *s);
    cr_assert(s != NULL && m->announced_count < MODEL_SEQUENCES && request->count + request->max_tokens < MODEL_TOKENS);
    s->id = request->id;
    s->prompt = request->count;
    s->max_tokens = request->max_tokens;
    s->ignore_eos = request->ignore_eos;
    s->pages = pages_for(&m->limits, request);
    memcpy(s->tokens, request->ids, (size_t)request->count * sizeof *s->tokens);
    m->announced[m->announced_count++] = s;
    m->seen[SEEN_admitted]++;
    return TPW_OK;
}

tpw_status model_cancel(model_scheduler *m, uint64_t id)
{
    model_sequence *s = find(m, id);

    if (s == NULL) {
        m->seen[SEEN_cancel_unknown]++;
        return TPW_ERR_ARGUMENT;
    }
    if (s->cancel) {
        m->seen[SEEN_cancelled_twice]++;
        return TPW_OK;
    }
    s->cancel = true;
    cr_assert_lt(m->cancel_count, MODEL_SEQUENCES);
    m->cancels[m->cancel_count++] = id;
    return TPW_OK;
}

static void push(model_scheduler *m, const tpw_event *event)
{
    cr_assert_lt(m->event_count, MODEL_EVENTS, "the test polls too seldom for its model");
    m->events[(m->event_first + m->event_count++) % MODEL_EVENTS] = *event;
}

bool model_poll(model_scheduler *m, tpw_event *event)
{
    if (m->event_count == 0)
        return false;
    *event = m->events[m->event_first];
    m->event_first = (m->event_first + 1) % MODEL_EVENTS;
    m->event_count--;
    return true;
}

static void push_finished(model_scheduler *m, const model_sequence *s, tpw_finish why, bool digests)
{
    push(m, &(tpw_event){.type = TPW_EVENT_FINISHED,
                         .id = s->id,
                         .position = s->pos,
                         .finish = why,
                         .prompt_tokens = s->prompt,
                         .output_tokens = s->emitted,
                         .digest_count = digests});
}

/* Ends a running sequence. */
static void end(model_scheduler *m, model_sequence *s, tpw_finish why)
{
    push_finished(m, s, why, true);
    take_out(m->running, &m->running_count, s);
    m->pages_free += s->pages;
    free(s);
}

/* Cancels come after the admission that they name, and the rest in the order of the calls: the order of both kinds among
 * one another shows nowhere else, since an id is admitted at most once a step. */
static void apply(model_scheduler *m)
{
    for (int32_t i = 0; i < m->announced_count; i++) {
        cr_assert_lt(m->waiting_count, MODEL_SEQUENCES);
        m->waiting[m->waiting_count++] = m->announced[i];
    }
    for (int32_t i = 0; i < m->cancel_count; i++) {
        model_sequence *s = find_in(m->running, m->running_count, m->cancels[i]);

        if (s != NULL) {
            m->seen[s->emitted > 0 ? SEEN_cancelled_running : SEEN_cancelled_in_prefill]++;
            end(m, s, TPW_FINISH_CANCELLED);
            continue;
        }
        s = find_in(m->waiting, m->waiting_count, m->cancels[i]);
        m->seen[find_in(m->announced, m->announced_count, s->id) != NULL ? SEEN_cancelled_at_once
                                                                         : SEEN_cancelled_waiting]++;
        push_finished(m, s, TPW_FINISH_CANCELLED, false);
        take_out(m->waiting, &m->waiting_count, s);
        take_out(m->announced, &m->announced_count, s);
        free(s);
    }
    m->announced_count = m->cancel_count = 0;
}

static void start(model_scheduler *m)
{
    int32_t at = 0;

    while (at < m->waiting_count) {
        model_sequence *s = m->waiting[at];

        if (m->running_count == m->limits.slots) {
            m->seen[SEEN_waited_for_slot]++;
            return;
        }
        if (s->pages > m->pages_free) {
            m->seen[SEEN_waited_for_pages]++;
            m->seen[SEEN_not_overtaken] += at + 1 < m->waiting_count && m->waiting[at + 1]->pages <= m->pages_free;
            if (!m->limits.overtakes)
                return;
            at++;
            continue;
        }
        take_out(m->waiting, &m->waiting_count, s);
        m->pages_free -= s->pages;
        m->running[m->running_count++] = s;
    }
}

/* The next token of a sequence, as one-token steps give it. False when it is over. */
static bool emit(model_scheduler *m, model_sequence *s)
{
    int32_t last = s->prompt + s->emitted - 1;
    int32_t token = m->limits.next(s->tokens[last], last, m->limits.vocab);

    if (token < 0) {
        s->over = true;
        s->why = TPW_FINISH_ERROR;
        s->pos = last + 1; /* the last token has been run, and nothing came out */
        m->seen[SEEN_finished_error]++;
        return false;
    }
    push(m, &(tpw_event){.type = TPW_EVENT_TOKEN, .id = s->id, .token = token, .position = last + 1});
    s->tokens[last + 1] = token;
    s->emitted++;
    s->pos = last + 1;
    m->output_tokens++;
    s->over = true;
    if (token == m->limits.end_id && !s->ignore_eos) {
        s->why = TPW_FINISH_STOP;
        m->seen[SEEN_finished_stop]++;
    } else if (s->emitted == s->max_tokens) {
        s->why = TPW_FINISH_LENGTH;
        m->seen[SEEN_finished_length]++;
    } else {
        s->over = false;
    }
    return !s->over;
}

/* A decoding sequence: its certain token, and one more for each draft that was right. */
static void decode(model_scheduler *m, model_sequence *s, int32_t drafts)
{
    int32_t proposed[TPW_K_MAX], n = 0;

    if (drafts > 0) {
        n = m->limits.drafter(NULL, s->id, s->tokens, s->prompt + s->emitted, drafts, proposed);
        m->seen[SEEN_draft_short] += n < drafts;
    }
    for (int32_t i = 0; emit(m, s); i++) {
        if (i == n)
            return;
        if (proposed[i] != s->tokens[s->prompt + s->emitted - 1]) {
            m->seen[SEEN_draft_rejected]++;
            return;
        }
        m->seen[SEEN_draft_accepted]++;
        if (m->limits.next(proposed[i], s->prompt + s->emitted - 1, m->limits.vocab) < 0)
            m->seen[SEEN_error_behind_drafts]++;
    }
}

static int32_t drafts_of(const model_scheduler *m, const model_sequence *s)
{
    int32_t useful = s->max_tokens - s->emitted - 1;

    return s->emitted == 0 ? 0 : useful < m->limits.k ? useful : m->limits.k;
}

/* Decoding sequences first, then a chunk of every prompt while there are rows. Returns the order in which they ran. */
static int32_t run(model_scheduler *m, model_sequence **ran)
{
    int32_t rows = m->limits.rows, count = 0, present = m->running_count;
    bool was_prefill[MODEL_SEQUENCES];

    for (int32_t i = 0; i < present; i++) {
        model_sequence *s = m->running[i];

        was_prefill[i] = s->prompt + s->emitted - s->pos > 1;
        if (was_prefill[i])
            continue;
        rows -= 1 + drafts_of(m, s);
        decode(m, s, drafts_of(m, s));
        ran[count++] = s;
    }
    for (int32_t i = 0; i < present && rows > 0; i++) {
        model_sequence *s = m->running[i];
        int32_t n = s->prompt - s->pos;

        if (!was_prefill[i])
            continue;
        n = n < m->limits.chunk ? n : m->limits.chunk;
        n = n < rows ? n : rows;
        rows -= n;
        s->pos += n;
        ran[count++] = s;
        if (s->pos == s->prompt)
            (void)emit(m, s);
        else
            m->seen[SEEN_chunked_prompt]++;
    }
    return count;
}

bool model_step(model_scheduler *m)
{
    model_sequence *ran[MODEL_SEQUENCES];
    int32_t count;

    apply(m);
    start(m);
    count = run(m, ran);
    m->seen[SEEN_shared_step] += count > 1;
    m->seen[SEEN_idle_step] += count == 0;
    for (int32_t i = 0; i < count; i++)
        if (ran[i]->over)
            end(m, ran[i], ran[i]->why);
    return m->running_count > 0 || m->waiting_count > 0;
}
