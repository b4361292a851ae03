/* The JSON note of a checkpoint.  Real numbers and the counters of `random` and `loader`, which use
 * all 64 bits, are strings in it, because programs may read JSON numbers as f64.
 *
 *   {"version": 2, "name": "digits", "epoch": 3, "metric": "0.0125", "serial": 7, "best": "lowest",
 *    "random": ["17", "4096"], "loader": ["9", "3", "0", "128"],
 *    "mixed": "f16", "rule": [{"name": "Adam", "eta": "0.001", ...}], "updates": 51,
 *    "slots": [{"path": "layers.0.weight", "steps": 51, "frozen": true}, ...],
 *    "average": true, "stop": ["2", "0.0125"], "reduce": ["0"]}
 *
 * A slot with numbers of its own has them under "rule"; one that is not frozen has no "frozen".
 * With "average" the file has the tensors of an average.  "stop" and "reduce" are a count and
 * a score (note_write_watch).  Version 1 has no name, metric, serial or best.  Files before 0.5
 * have no updates. */
#include "train/checkpoint.h"

#include "base/numbers/philox.h"
#include "base/text.h"
#include "data/loader.h"
#include "io/json.h"
#include "optim/optim.h"

#include <inttypes.h>
#include <stdio.h>

static void note_write_number(wb__json_out *out, const char *key, double value)
{
    char text[40];
    wb__plain(text, sizeof text, "%.17g", value);
    wb__json_put_pair(out, key, text);
}

static void note_write_integer(wb__json_out *out, const char *key, int64_t value)
{
    wb__json_put_key(out, key);
    wb__json_put_integer(out, value);
}

static void note_write_words(wb__json_out *out, const char *key, int n, const uint64_t *words)
{
    wb__json_put_key(out, key);
    wb__json_open(out, '[');
    for (int i = 0; i < n; i++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, words[i]);
        wb__json_put_text(out, text);
    }
    wb__json_close(out, ']');
}

/* Writes the rule with the numbers `own` of a slot; NULL: with the rule's numbers. */
static void note_write_rule(wb__json_out *out, const wb_rule *rule, const wb_Rule_options *own)
{
    wb__json_put_key(out, "rule");
    wb__json_open(out, '[');
    for (int i = 0; i < rule->n; i++) {
        const wb__rule_part *p = &rule->parts[i];
        wb__json_open(out, '{');
        wb__json_put_pair(out, "name", p->kind->name);
        for (int k = 0; k < WB__RULE_NUMBERS; k++)
            if (wb__part_has(p, k))
                note_write_number(out, wb__rule_fields[k].name,
                                  *wb__rule_number(own ? &own[i] : &p->o, k));
        wb__json_close(out, '}');
    }
    wb__json_close(out, ']');
}

static void note_write_slots(wb__json_out *out, const wb_opt_state *s)
{
    wb__json_put_key(out, "slots");
    wb__json_open(out, '[');
    for (int i = 0; i < s->n; i++) {
        wb__json_open(out, '{');
        wb__json_put_pair(out, "path", s->slots[i].path);
        note_write_integer(out, "steps", s->counts->slot[i].steps);
        if (s->slots[i].frozen) {
            wb__json_put_key(out, "frozen");
            wb__json_put_bool(out, true);
        }
        if (s->slots[i].own) note_write_rule(out, s->rule, s->slots[i].own);
        wb__json_close(out, '}');
    }
    wb__json_close(out, ']');
}

/* Writes the count of a watched number and its score, if there is one: "stop": ["2", "0.0125"]. */
static void note_write_watch(wb__json_out *out, const char *key, const wb_watch *w)
{
    char count[24], score[40];
    if (!w) return;
    snprintf(count, sizeof count, "%d", w->count);
    wb__plain(score, sizeof score, "%.17g", w->score);
    wb__json_put_key(out, key);
    wb__json_open(out, '[');
    wb__json_put_text(out, count);
    if (w->begun) wb__json_put_text(out, score);
    wb__json_close(out, ']');
}

char *wb__checkpoint_note(const wb_checkpoint *c, int64_t serial, const char *best)
{
    const wb__rng_state random = wb__rng_get_state();
    wb__json_out out = {0};
    wb__json_open(&out, '{');
    note_write_integer(&out, "version", WB__CHECKPOINT_VERSION);
    note_write_integer(&out, "epoch", c->epoch);
    note_write_words(&out, "random", 2, (uint64_t[]){random.key, random.counter});
    if (c->name) wb__json_put_pair(&out, "name", c->name);
    if (c->has_metric) note_write_number(&out, "metric", c->metric);
    if (serial) note_write_integer(&out, "serial", serial);
    if (best) wb__json_put_pair(&out, "best", best);
    if (c->loader) {
        uint64_t words[WB__LOADER_WORDS];
        wb__loader_state(c->loader, words);
        note_write_words(&out, "loader", WB__LOADER_SHUFFLE, words);
        note_write_words(&out, "order", WB__LOADER_WORDS - WB__LOADER_SHUFFLE,
                         words + WB__LOADER_SHUFFLE);
    }
    if (c->average) {
        wb__json_put_key(&out, "average");
        wb__json_put_bool(&out, true);
    }
    note_write_watch(&out, "stop", c->stop);
    note_write_watch(&out, "reduce", c->reduce);
    if (c->state) {
        if (c->state->mixed) wb__json_put_pair(&out, "mixed", wb_dtype_name(c->state->mixed));
        note_write_rule(&out, c->state->rule, NULL);
        note_write_integer(&out, "updates", c->state->counts->updates);
        note_write_slots(&out, c->state);
    }
    wb__json_close(&out, '}');
    return wb__json_take(&out);
}
