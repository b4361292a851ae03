/* Any bytes as a tokenizer.json, or a vocab.txt, and as a text: read or refused. */
#include "file.h"

#include <string.h>

static void use(wb_tokenizer *t, const char *text)
{
    const char *const texts[] = {text, "Grüße, [MASK] and 123 words' ends\n"};
    wb_tensor *offsets = NULL;
    wb_tensor *ids = wb_encode(t, text, .pair = texts[1], .offsets = &offsets);
    char *back = ids ? wb_decode(t, ids, .keep_special = true) : NULL;
    wb_free_text(back);
    wb_encode_batch(t, 2, texts, .most = 64);
    wb_encode_batch(t, 1, texts, .length = 8, .special = false);
    wb_decoder *d = wb_decoder_begin(t);
    for (int64_t i = 0; i < 40; i++) wb_decoder_next(d, i);
    wb_decoder_end(d);
    wb_token_text(t, wb_token_id(t, "a"));
    wb_vocabulary_size(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static wb_tokenizer *fixed;
    static const char small[] =
        "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
        "\"\xc4\xa0\":3,\"<0x41>\":4},\"merges\":[\"a b\"]},\"normalizer\":{\"type\":\"NFKC\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}";
    if (!fixed) {
        fixed = wb_load_tokenizer(fuzz_file((const uint8_t *)small, sizeof small - 1));
        wb_retain(fixed);
    }
    const char *path = fuzz_file(data, size);
    wb_scope *scope = wb_scope_open();
    wb_tokenizer *t = wb_load_tokenizer(path);
    char text[4096];
    const size_t n = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = 0;
    if (t) use(t, text);
    if (fixed) use(fixed, text);
    wb_scope_close(scope);
    return 0;
}
